"""The language model: embedding, residual blocks with a norm before each mixer and ffn, final norm, head."""

from __future__ import annotations

from typing import cast

import torch
from ssm_kernels import gated_rms_norm
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from ssm.base.seeds import derived_seed
from ssm.models.ffn import build_ffn
from ssm.models.linear import Linear, linear
from ssm.models.mixers import build_mixer
from ssm.models.mixers.parts import upcast
from ssm.models.state import FFN, LayerState, State
from ssm.specs.model import ModelSpec


class Block(nn.Module):
    """x + mixer(norm(x)), then x + ffn(norm(x)), if the layer has an ffn. With parallel_residual both read one x."""

    def __init__(self, model: ModelSpec, layer: int):
        super().__init__()
        self.parallel = model.parallel_residual
        self.norm = build_norm(model)
        self.mixer = build_mixer(model.mixers()[layer], model.d_model, model.n_layers, layer)
        self.ffn, ffn = None, model.ffns()[layer]
        if ffn is not None:
            self.ffn_norm = build_norm(model)
            self.ffn = build_ffn(ffn, model.d_model, model.n_layers, layer)

    def forward(
        self, x: Tensor, state: LayerState | None, resets: Tensor | None, v_first: Tensor | None
    ) -> tuple[Tensor, LayerState, Tensor | None]:
        """A whole sequence, x (B, T, D). Mixers pass `v_first` from layer to layer (`Mixer.forward_with_v_first`)."""
        mixer_state, ffn_state = _split(state)
        y, ended, v_first = self.mixer.forward_with_v_first(self.norm(x), mixer_state, resets, v_first)
        if self.ffn is None:
            return x + y, ended, v_first
        z, ffn_ended = self.ffn(self.ffn_norm(x if self.parallel else x + y), ffn_state, resets)
        return x + y + z, _merged(ended, ffn_ended), v_first

    def step(
        self, x: Tensor, state: LayerState | None, v_first: Tensor | None
    ) -> tuple[Tensor, LayerState, Tensor | None]:
        """One token, x (B, D)."""
        mixer_state, ffn_state = _split(state)
        y, ended, v_first = self.mixer.step_with_v_first(self.norm(x), mixer_state, v_first)
        if self.ffn is None:
            return x + y, ended, v_first
        z, ffn_ended = self.ffn.step(self.ffn_norm(x if self.parallel else x + y), ffn_state)
        return x + y + z, _merged(ended, ffn_ended), v_first


class LanguageModel(nn.Module):
    """A language model: tokens and a state -> logits and the next state.

    You can split a sequence anywhere and carry the state, without changing the result. With `channels`, the inputs are
    values (..., C + 1) instead of tokens (see `ValueEmbedding`), and the head is an untied linear map to `vocab_size`
    classes.
    """

    def __init__(self, spec: ModelSpec, vocab_size: int, channels: int | None = None):
        super().__init__()
        self.spec, self.vocab_size, self.channels = spec, vocab_size, channels
        self.tied = spec.tie_embeddings and channels is None
        self.recompute = False  # True: the backward pass computes activations inside blocks again, to save memory
        rows = spec.embedding_rows(vocab_size)
        self.embedding = (
            nn.Embedding(rows, spec.d_model) if channels is None else ValueEmbedding(channels, spec.d_model)
        )
        self.embedding_norm = build_norm(spec) if spec.embedding_norm else nn.Identity()
        self.layers = nn.ModuleList(Block(spec, layer) for layer in range(spec.n_layers))
        self.norm = build_norm(spec)
        if isinstance(self.embedding, nn.Embedding):
            nn.init.normal_(self.embedding.weight, std=0.02)
        if not self.tied:
            self.head = Linear(spec.d_model, rows, bias=False)

    def forward(self, tokens: Tensor, state: State | None = None, resets: Tensor | None = None) -> tuple[Tensor, State]:
        """Logits of the next token at every position.

        Args:
            tokens: (B, T) int64, T > 0.
            state: the initial state; None is the zero state.
            resets: (B, T) bool; True resets the state before this token (the first token of a document).

        Returns:
            Logits (B, T, V) and the state after the last token.
        """
        x, state = self.hidden(tokens, state, resets)
        return self.logits(x), state

    def step(self, tokens: Tensor, state: State | None = None) -> tuple[Tensor, State]:
        """Decode one token: tokens (B,) int64 -> logits of the next tokens (B, V), and the state after `tokens`."""
        x = self.embedded(tokens)  # (B, D)
        ended, v_first = [], None
        for i, layer in enumerate(self.layers):
            assert isinstance(layer, Block)
            x, layer_state, v_first = layer.step(x, None if state is None else state.layers[i], v_first)
            ended.append(layer_state)
        return self.logits(self.norm(x)), State(tuple(ended))

    def hidden(self, tokens: Tensor, state: State | None = None, resets: Tensor | None = None) -> tuple[Tensor, State]:
        """The activations (B, T, D) after the final norm, and the state after the last token."""
        x = self.embedded(tokens)  # (B, T, D)
        ended, v_first = [], None
        for i, layer in enumerate(self.layers):
            layer_state = None if state is None else state.layers[i]
            if self.recompute and torch.is_grad_enabled():
                x, layer_state, v_first = checkpoint(layer, x, layer_state, resets, v_first, use_reentrant=False)
            else:
                x, layer_state, v_first = layer(x, layer_state, resets, v_first)
            ended.append(layer_state)
        return self.norm(x), State(tuple(ended))

    def faded(self, state: State, factor: float) -> State:
        """The state in which earlier tokens weigh `factor` times as much, 0 < factor < 1; caches stay. See `Mixer`."""
        faded = []
        for layer, layer_state in zip(self.layers, state.layers, strict=True):
            assert isinstance(layer, Block)
            faded.append(layer.mixer.faded(layer_state, factor))
        return State(tuple(faded))

    def embedded(self, tokens: Tensor) -> Tensor:
        """The input of the first layer: tokens (...) or values (..., C + 1) -> (..., D)."""
        x = self.embedding(tokens)
        if self.spec.embedding_scale != 1:
            x = x * self.spec.embedding_scale
        return self.embedding_norm(x)

    def logits(self, hidden: Tensor) -> Tensor:
        """Logits: (..., D) -> (..., V), without the rows that only pad the vocabulary."""
        weight = cast(nn.Embedding, self.embedding).weight if self.tied else self.head.weight
        logits = linear(hidden, weight)[..., : self.vocab_size]
        cap = self.spec.logit_cap
        return logits if cap is None else cap * torch.tanh(logits / cap)

    @property
    def hidden_size(self) -> int:
        """D: numbers that `hidden` returns for each token."""
        return self.spec.d_model

    @property
    def parameters_count(self) -> int:
        """Number of parameters; tied parameters count once."""
        return sum(parameter.numel() for parameter in self.parameters())


class ValueEmbedding(nn.Module):
    """The input layer for values: a linear map of C numbers, or a learned class token."""

    def __init__(self, channels: int, d_model: int):
        super().__init__()
        self.map = Linear(channels, d_model)
        self.class_token = nn.Parameter(torch.empty(d_model))
        nn.init.normal_(self.class_token, std=0.02)

    def forward(self, values: Tensor) -> Tensor:
        """values (..., C + 1) -> (..., D). A last number other than 0 marks a class token."""
        return torch.where(values[..., -1:] != 0, self.class_token, self.map(values[..., :-1]))


class RmsNorm(nn.Module):
    """RMSNorm (Zhang & Sennrich 2019) over the last axis."""

    def __init__(self, width: int, eps: float):
        super().__init__()
        self.eps, self.weight = eps, nn.Parameter(torch.ones(width))

    def forward(self, x: Tensor) -> Tensor:
        """x (..., D) -> (..., D)."""
        return gated_rms_norm(x, self.weight, eps=self.eps)


class RmsNormFromOne(nn.Module):
    """RMSNorm with scale 1 + weight, as in Gemma."""

    def __init__(self, width: int, eps: float):
        super().__init__()
        self.eps, self.weight = eps, nn.Parameter(torch.zeros(width))

    def forward(self, x: Tensor) -> Tensor:
        """x (..., D) -> (..., D)."""
        return gated_rms_norm(x, 1 + upcast(self.weight), eps=self.eps)  # in bf16, 1 + weight loses small weights


NORMS: dict[str, type[RmsNorm | RmsNormFromOne | nn.LayerNorm]] = {
    "rms": RmsNorm,
    "rms_from_one": RmsNormFromOne,
    "layer": nn.LayerNorm,
}


def build_norm(spec: ModelSpec) -> nn.Module:
    """The model's norm over its width."""
    return NORMS[spec.norm](spec.d_model, eps=spec.norm_eps)


def build_model(spec: ModelSpec, vocab_size: int, seed: int, channels: int | None = None) -> LanguageModel:
    """A newly initialized model. It depends only on the arguments, not on random numbers drawn before.

    Call it in one thread at a time: it seeds torch's global generator, and restores it.
    """
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(derived_seed(seed, "initialization"))
        return LanguageModel(spec, vocab_size, channels)


def _split(state: LayerState | None) -> tuple[LayerState | None, LayerState | None]:
    """The mixer's part of a layer's state, and the ffn's."""
    if state is None:
        return None, None
    mixer = {name: tensor for name, tensor in state.items() if not name.startswith(FFN)}
    return mixer, {name.removeprefix(FFN): tensor for name, tensor in state.items() if name.startswith(FFN)}


def _merged(mixer: LayerState, ffn: LayerState) -> LayerState:
    """The inverse of `_split`."""
    return mixer | {FFN + name: tensor for name, tensor in ffn.items()}
