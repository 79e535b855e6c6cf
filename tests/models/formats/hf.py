"""The round trips of transformers' models."""

from __future__ import annotations

from copy import deepcopy
from pathlib import Path
from typing import Any

import torch
import transformers
from models.formats import round_trip
from ssm_kernels.testing.numerics import error
from torch import Tensor, nn

from ssm.models.backbone import LanguageModel

transformers.utils.logging.set_verbosity_error()
transformers.utils.logging.disable_progress_bar()


def made(kind: str, **config: Any) -> nn.Module:
    """A model of this class with random weights."""
    torch.manual_seed(0)
    model_class = getattr(transformers, f"{kind}ForCausalLM")
    peer = model_class(model_class.config_class(vocab_size=round_trip.VOCABULARY, **config))
    for name, bias in peer.named_buffers():
        if name.endswith("e_score_correction_bias"):  # of experts
            bias.copy_(torch.linspace(0.4, -0.4, len(bias)))
    return round_trip.moved(peer)


def run(peer: nn.Module, tokens: Tensor) -> Tensor:
    """Logits (B, T, V)."""
    with torch.no_grad():
        return peer(tokens, use_cache=False).logits


def load(folder: Path) -> nn.Module:
    """Load a folder with transformers, which finds no missing and no unknown tensors."""
    config = transformers.AutoConfig.from_pretrained(folder)
    model_class = getattr(transformers, config.architectures[0])
    peer, info = model_class.from_pretrained(folder, output_loading_info=True)
    assert not any(info.values()), info
    return peer.eval()


def check(peer: nn.Module, tmp_path: Path) -> Any:
    """The round trips of a model, in float32 and in bfloat16; and its gradients."""
    return round_trip.check_saved(peer, tmp_path, load, run, check_gradients)


@torch.enable_grad()
def check_gradients(ours: LanguageModel, peer: Any) -> None:
    """The gradient of the embedding equals transformers', or finite differences for RecurrentGemma.

    transformers' own gradient of RecurrentGemma differs from finite differences.
    """
    if peer.config.model_type == "recurrent_gemma":
        check_slope(deepcopy(ours).double())
        return
    weight = torch.randn(*round_trip.tokens().shape, round_trip.VOCABULARY, generator=torch.Generator().manual_seed(1))
    gradients: list[Tensor] = []
    for logits, embedding in (
        (ours(round_trip.tokens())[0], ours.embedding.weight),
        (peer(round_trip.tokens(), use_cache=False).logits, peer.get_input_embeddings().weight),
    ):
        gradients += torch.autograd.grad((logits * weight).sum(), embedding)
    assert error(*gradients) < 1e-4


def check_slope(ours: LanguageModel) -> None:
    """The gradient of the embedding along a random direction equals a finite difference in float64."""
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
