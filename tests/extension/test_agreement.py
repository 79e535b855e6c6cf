"""The library itself computes the same losses and logits as `ssm extend`."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import pytest
import torch
from journey.agreement import agrees, differences
from journey.peers import Mamba2

pytestmark = pytest.mark.usefixtures("without_plots")


def test_transformers_computes_the_numbers_of_the_result(world: Path, whole: Path) -> None:
    peer = Mamba2()
    original, extended = peer.load(world / "theirs"), peer.load(whole / "model")
    for model in (original, extended):
        for layer in model.backbone.layers:  # type: ignore[union-attr]
            layer.mixer.chunk_size = 16  # it pads to a chunk, and most inputs here have 16 tokens
    given = whole, partial(peer.logits, original), partial(peer.logits, extended)
    found = differences(*given)
    assert len(found) == 7
    assert agrees(found), found
    with torch.no_grad():
        extended.get_submodule("backbone.norm_f").weight *= 1.01  # type: ignore[operator]
    off = differences(*given)
    assert off["logits"] > 1e-3
    assert off["extended, far_perplexity"] > 1e-4
    assert not agrees({"logits": float("nan")})
