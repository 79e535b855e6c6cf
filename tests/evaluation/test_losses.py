"""Position-wise and restart losses against the plain definition, token by token."""

from __future__ import annotations

import numpy as np
import polars as pl
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from ssm.base.tables import POSITION_LOSS
from ssm.evaluation import stream
from ssm.evaluation.bins import bin_edges, octaves
from ssm.evaluation.position_loss import position_loss
from ssm.evaluation.restart_loss import restart_loss
from ssm.evaluation.subject import Subject
from ssm.specs.measurement import PositionLoss, RestartLoss


def loss_of_context(subject: Subject, context: torch.Tensor, target: int) -> float:
    """-log q(target | context), the whole context read from the zero state."""
    with torch.no_grad():
        logits, _ = subject.model(context[None])
    return float(-logits[0, -1].log_softmax(-1)[target])


def test_position_loss_is_the_definition(subject: Subject) -> None:
    table = position_loss(PositionLoss(length=40, sequences=3), subject)
    windows = subject.windows(3, 40, 5)
    inputs, targets = windows.read(np.arange(3), 0, 40)
    for row in table.iter_rows(named=True):
        positions = range(row["position_from"], row["position_to"])
        naive = [
            loss_of_context(subject, inputs[row["sequence"], : p + 1], int(targets[row["sequence"], p]))
            for p in positions
        ]
        assert row["loss"] == pytest.approx(np.mean(naive), rel=1e-9)
    assert table.columns == list(POSITION_LOSS.columns)


def test_restart_loss_is_the_definition(subject: Subject) -> None:
    T, length = 8, 32
    table = restart_loss(RestartLoss(length=length, sequences=2, context=T), subject)
    inputs, targets = subject.windows(2, length, 5).read(np.arange(2), 0, length)
    assert table["position_to"].unique().sort().to_list() == [8, 16, 32]
    for row in table.iter_rows(named=True):
        naive = []
        for p in range(row["position_from"], row["position_to"]):
            # the restart lies on the grid of T/2, at least T/2 and less than T tokens before the target's position
            start = max(0, (p // (T // 2) - 1) * (T // 2))
            assert p + 1 - start <= T
            assert p + 1 - start > T // 2
            naive.append(
                loss_of_context(subject, inputs[row["sequence"], start : p + 1], int(targets[row["sequence"], p]))
            )
        assert row["loss"] == pytest.approx(np.mean(naive), rel=1e-9)


def test_within_the_first_context_restart_and_position_loss_agree(subject: Subject) -> None:
    restarted = restart_loss(RestartLoss(length=64, sequences=4, context=16), subject)
    full = position_loss(PositionLoss(length=64, sequences=4), subject)
    first = restarted.filter(pl.col("position_to") == 16)["loss"]
    inside = full.filter((pl.col("position_from") >= 12) & (pl.col("position_to") <= 16))
    assert first.to_list() == pytest.approx(
        inside.group_by("sequence").agg(pl.col("loss").mean()).sort("sequence")["loss"].to_list()
    )


@pytest.mark.parametrize("forward_tokens", [1, 7, 64, 10_000])
def test_segments_do_not_change_the_loss(
    forward_tokens: int, subject: Subject, monkeypatch: pytest.MonkeyPatch
) -> None:
    spec = PositionLoss(length=100, sequences=5)
    expected = position_loss(spec, subject)["loss"].to_numpy()
    monkeypatch.setitem(stream.FORWARD_TOKENS, "cpu", forward_tokens)
    monkeypatch.setitem(stream.ROWS, "cpu", 2)
    monkeypatch.setattr(stream, "LOGITS", 256 * forward_tokens)
    np.testing.assert_allclose(position_loss(spec, subject)["loss"].to_numpy(), expected, rtol=1e-9)


@given(st.integers(1, 100_000))
@settings(deadline=None)
def test_bins_tile_every_length(length: int) -> None:
    edges = bin_edges(length)
    assert edges[0] == 0
    assert edges[-1] == length
    assert (np.diff(edges) > 0).all()
    for power in (2**i for i in range(2, 17) if 2**i <= length):
        assert power in edges
        assert power * 3 // 4 in edges


def test_octaves() -> None:
    assert octaves(32, 2048) == [1, 2, 4, 8, 16, 32, 64]
    assert octaves(32, 100) == [1, 2]
