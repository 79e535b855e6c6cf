"""transformers' side of the round trips."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
import transformers
from kernels.numerics import error
from models.formats import round_trip
from torch import Tensor, nn

from ssm.models.formats import import_checkpoint

transformers.utils.logging.set_verbosity_error()
transformers.utils.logging.disable_progress_bar()


def made(kind: str, **config: Any) -> nn.Module:
    """A model of this class with random weights."""
    torch.manual_seed(0)
    model_class = getattr(transformers, f"{kind}ForCausalLM")
    return round_trip.moved(model_class(model_class.config_class(vocab_size=round_trip.VOCABULARY, **config)))


def run(peer: nn.Module, tokens: Tensor) -> Tensor:
    """Logits (B, T, V)."""
    with torch.no_grad():
        return peer(tokens, use_cache=False).logits


def load(folder: Path) -> nn.Module:
    """What transformers makes of a folder; it misses nothing and knows every name."""
    config = transformers.AutoConfig.from_pretrained(folder)
    model_class = getattr(transformers, config.architectures[0])
    peer, info = model_class.from_pretrained(folder, output_loading_info=True)
    assert not any(info.values()), info
    return peer.eval()


def check(peer: nn.Module, tmp_path: Path) -> Any:
    """The round trips of a model, in float32 and in bfloat16; and its gradients, through all layers."""
    check_gradients(peer, tmp_path)
    return round_trip.check_saved(peer, tmp_path, load, run)


def check_gradients(peer: Any, tmp_path: Path) -> None:
    """The embedding's are those of transformers; of RecurrentGemma, those of finite differences.

    transformers' own of RecurrentGemma are no derivatives of its pass: they differ from finite differences too.
    """
    if peer.config.model_type == "recurrent_gemma":
        check_slope(peer, tmp_path)
        return
    peer.save_pretrained(tmp_path / "of_gradients")
    ours = import_checkpoint(tmp_path / "of_gradients").model
    peer = load(tmp_path / "of_gradients")  # a forward pass of RWKV-4 writes into its weights
    tokens = round_trip.tokens()
    weight = torch.randn(*tokens.shape, round_trip.VOCABULARY, generator=torch.Generator().manual_seed(1))
    found = []
    for logits, embedding in (
        (ours(tokens)[0], ours.embedding.weight),
        (peer(tokens, use_cache=False).logits, peer.get_input_embeddings().weight),
    ):
        found += torch.autograd.grad((logits * weight).sum(), embedding)
    assert error(*found) < 1e-4


def check_slope(peer: Any, tmp_path: Path) -> None:
    """The embedding's gradient along a random direction is the difference of two passes in float64."""
    peer.save_pretrained(tmp_path / "of_slope")
    ours = import_checkpoint(tmp_path / "of_slope").model.double()
    tokens, embedding = round_trip.tokens(), ours.embedding.weight
    weight = torch.randn(*tokens.shape, round_trip.VOCABULARY, generator=torch.Generator().manual_seed(1)).double()
    direction = torch.randn(embedding.shape, generator=torch.Generator().manual_seed(2)).double()
    (gradient,) = torch.autograd.grad((ours(tokens)[0] * weight).sum(), embedding)
    step, ends = 1e-5, list[float]()
    with torch.no_grad():
        for sign in (1, -2):
            embedding += sign * step * direction
            ends.append(float((ours(tokens)[0] * weight).sum()))
    slope = (ends[0] - ends[1]) / (2 * step)
    assert abs(float((gradient * direction).sum()) - slope) < 1e-6 * abs(slope)
