"""The language model: embedding, pre-norm residual blocks over interchangeable mixers, norm, head."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from ssm.base.seeds import derived_seed
from ssm.models.mixers import build_mixer
from ssm.models.state import State
from ssm.specs.model import MixerSpec, ModelSpec


class Block(nn.Module):
    """x + mixer(RMSNorm(x))."""

    def __init__(self, mixer: MixerSpec, model: ModelSpec):
        super().__init__()
        self.norm = nn.RMSNorm(model.d_model, eps=model.norm_eps)
        self.mixer = build_mixer(mixer, model.d_model, model.n_layers)

    def forward(
        self, x: Tensor, state: dict[str, Tensor] | None, resets: Tensor | None
    ) -> tuple[Tensor, dict[str, Tensor]]:
        y, state = self.mixer(self.norm(x), state, resets)
        return x + y, state


class LanguageModel(nn.Module):
    """tokens, state -> logits, state. Splitting a sequence anywhere and carrying the state changes nothing."""

    def __init__(self, spec: ModelSpec, vocab_size: int):
        super().__init__()
        self.spec, self.vocab_size = spec, vocab_size
        self.recompute = False  # keep no activations inside blocks; the backward pass computes them again
        rows = -(-vocab_size // spec.vocab_multiple) * spec.vocab_multiple
        self.embedding = nn.Embedding(rows, spec.d_model)
        self.layers = nn.ModuleList(Block(mixer, spec) for mixer in spec.mixers())
        self.norm = nn.RMSNorm(spec.d_model, eps=spec.norm_eps)
        nn.init.normal_(self.embedding.weight, std=0.02)
        if not spec.tie_embeddings:
            self.head = nn.Linear(spec.d_model, rows, bias=False)

    def forward(self, tokens: Tensor, state: State | None = None, resets: Tensor | None = None) -> tuple[Tensor, State]:
        """Logits of the next token at every position.

        Args:
            tokens: (B, T) int64.
            state: where the sequences start from; None is the zero state.
            resets: (B, T) bool; True forgets all that came before this token (a document's first token).

        Returns:
            Logits (B, T, V) and the state after the last token.
        """
        x, state = self.hidden(tokens, state, resets)
        return self.logits(x), state

    def hidden(self, tokens: Tensor, state: State | None = None, resets: Tensor | None = None) -> tuple[Tensor, State]:
        """The last hidden activations (B, T, D), normalized, and the state after the last token."""
        x = self.embedding(tokens)  # (B, T, D)
        ended = []
        for i, layer in enumerate(self.layers):
            layer_state = None if state is None else state.layers[i]
            if self.recompute and torch.is_grad_enabled():
                x, layer_state = checkpoint(layer, x, layer_state, resets, use_reentrant=False)
            else:
                x, layer_state = layer(x, layer_state, resets)
            ended.append(layer_state)
        return self.norm(x), State(tuple(ended))

    def logits(self, hidden: Tensor) -> Tensor:
        """(..., D) -> (..., V): rows that only round up the vocabulary are left out."""
        weight = self.embedding.weight if self.spec.tie_embeddings else self.head.weight
        return F.linear(hidden, weight)[..., : self.vocab_size]

    @property
    def parameters_count(self) -> int:
        """Parameters, tied embeddings once."""
        return sum(parameter.numel() for parameter in self.parameters())


def build_model(spec: ModelSpec, vocab_size: int, seed: int) -> LanguageModel:
    """A freshly initialized model: a function of (spec, vocab_size, seed), whatever was drawn before."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(derived_seed(seed, "initialization"))
        return LanguageModel(spec, vocab_size)
