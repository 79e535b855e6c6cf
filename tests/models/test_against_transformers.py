"""Mamba and Mamba-2 against transformers: logits and gradients of every weight. formats/ compares decoding."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from models import tiny
from ssm_kernels.benchmarks.peer import Peer, transformers_peer
from ssm_kernels.testing.numerics import error
from torch import Tensor, nn

from ssm.models.backbone import LanguageModel

MAMBA1 = {"kind": "mamba1", "d_state": 6}
VARIANTS: dict[str, dict[str, Any]] = {
    "one group": {"n_groups": 1},
    "two groups": {"n_groups": 2},
    "untied": {"tie_embeddings": False},
    "rounded vocabulary": {"vocab_multiple": 8},
    "limited dt": {"dt_limit": (0.05, 0.5)},
    "one layer, wide": {"n_layers": 1, "expand": 4, "d_conv": 2},
    "chunk longer than the sequence": {"chunk": 64},
    "Mamba": {"mixer": MAMBA1},
    "Mamba, other sizes": {"mixer": MAMBA1 | {"expand": 1, "d_conv": 2, "dt_rank": 3}},
    "Mamba, slow decay": {"mixer": MAMBA1 | {"a_range": [0.1, 0.1]}},
}


def peer_of(model: LanguageModel) -> Peer:
    """transformers' model with our weights."""
    if model.spec.mixer.kind == "mamba1":
        return transformers_peer(model, "mamba", use_mambapy=False, use_associative_scan=False)
    return transformers_peer(model, "mamba2", chunk_size=8)


def loss_gradients(model: nn.Module, logits: Tensor) -> dict[str, Tensor]:
    """The gradient of a loss that depends on every logit, by parameter name."""
    weight = torch.randn(logits.shape, generator=torch.Generator().manual_seed(1))
    names, parameters = zip(*model.named_parameters(), strict=True)
    return dict(zip(names, torch.autograd.grad((logits * weight).mean(), parameters), strict=True))


@pytest.mark.parametrize("changes", VARIANTS.values(), ids=VARIANTS)
def test_logits_and_gradients(changes: dict[str, Any]) -> None:
    model = tiny.model(**changes)
    tokens = tiny.tokens(0, 3, 23)  # 23 is not a multiple of either chunk
    ours = model(tokens)[0]
    peer = peer_of(model)
    theirs = peer.model(tokens, use_cache=False).logits
    assert ours.std() > 0.3
    assert theirs.shape[-1] == model.embedding.num_embeddings
    theirs = theirs[..., : tiny.VOCABULARY]
    assert error(ours, theirs) < 1e-5

    expected = loss_gradients(peer.model, theirs)
    gradients = peer.converted(loss_gradients(model, ours))
    assert gradients.keys() == expected.keys()
    for name, gradient in gradients.items():
        assert error(gradient, expected[name]) < 1e-4, name


def test_a_wrong_weight_changes_the_logits() -> None:
    model = tiny.model()
    peer = peer_of(model)
    with torch.no_grad():
        model.layers[1].mixer.D[0] += 0.01
    tokens = tiny.tokens(0, 3, 23)
    assert (model(tokens)[0] - peer.model(tokens, use_cache=False).logits).abs().max() > 1e-4
