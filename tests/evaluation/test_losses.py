"""Losses on held-out windows, compared with their definitions, token by token."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import polars as pl
import pytest
import torch
from evaluation.rigged import Rigged
from hypothesis import given
from hypothesis import strategies as st
from polars.testing import assert_frame_equal

from ssm.base.bins import bin_edges
from ssm.claims.table_numbers import mean_loss, paired_log_ratio, ratio_positions
from ssm.evaluation.context_loss import context_loss
from ssm.evaluation.evaluation_context import EvaluationContext
from ssm.evaluation.position_loss import position_loss
from ssm.evaluation.restart_loss import restart_loss
from ssm.evaluation.validation_loss import validation_loss
from ssm.specs.config import DryRun
from ssm.specs.measurements.context_loss import ContextLoss
from ssm.specs.measurements.position_loss import PositionLoss
from ssm.specs.measurements.restart_loss import RestartLoss, octaves
from ssm.specs.measurements.validation_loss import ValidationLoss


def loss_of_context(ctx: EvaluationContext, context: torch.Tensor, target: int) -> float:
    """-log q(target | context), read from the zero state."""
    with torch.no_grad():
        logits, _ = ctx.model(context[None])
    return float(-logits[0, -1].log_softmax(-1)[target])


def test_the_seeds_of_run_and_measurement_choose_the_windows(ctx: EvaluationContext) -> None:
    """Arms of one seed read the same windows, so they are paired."""
    read = [replace(ctx, seed=run).windows(4, 40, seed).positions for run, seed in ((3, 5), (4, 5), (3, 6), (3, 5))]
    assert np.array_equal(read[0], read[3])
    assert not np.array_equal(read[0], read[1])
    assert not np.array_equal(read[0], read[2])


def test_position_loss_agrees_with_its_definition(ctx: EvaluationContext) -> None:
    table = position_loss(PositionLoss(length=40, sequences=3), ctx)
    windows = ctx.windows(3, 40, 5)
    inputs, targets = windows.read(np.arange(3), 0, 40)
    for row in table.iter_rows(named=True):
        positions = range(row["position_from"], row["position_to"])
        naive = [
            loss_of_context(ctx, inputs[row["sequence"], : p + 1], int(targets[row["sequence"], p])) for p in positions
        ]
        assert row["loss"] == pytest.approx(np.mean(naive), rel=1e-9)
    assert table.columns == list(PositionLoss.table.columns)


def test_shuffled_windows_keep_their_targets_and_exchange_the_text_before(ctx: EvaluationContext) -> None:
    """Three windows have three whole chunks and a shorter one. Sequence r reads those of r, r + 1, r + 2 and r."""
    table = position_loss(PositionLoss(length=22, sequences=3, shuffled=6), ctx)
    inputs, targets = ctx.windows(3, 22, 5).read(np.arange(3), 0, 22)
    for row in table.iter_rows(named=True):
        window, naive = row["sequence"], []
        for p in range(row["position_from"], row["position_to"]):
            before = [inputs[(window - p // 6 + j) % 3, 6 * j : 6 * j + 6] for j in range(p // 6)]
            context = torch.cat([*before, inputs[window, p // 6 * 6 : p + 1]])
            naive.append(loss_of_context(ctx, context, int(targets[window, p])))
        assert row["loss"] == pytest.approx(np.mean(naive), rel=1e-9)
    unshuffled = position_loss(PositionLoss(length=22, sequences=3), ctx)
    first = pl.col("position_to") <= 6
    assert_frame_equal(table.filter(first), unshuffled.filter(first), rel_tol=1e-12)  # no chunk before
    assert table.drop("loss").equals(unshuffled.drop("loss"))


def test_shuffling_matters_only_for_a_long_memory(ctx: EvaluationContext) -> None:
    """A model that reads only the last token has the same loss. A model that remembers the first token has not."""
    last = replace(ctx, model=Rigged(lambda read: (read + 1) % 256))
    whole, shuffled = (position_loss(PositionLoss(length=64, sequences=4, shuffled=n), last) for n in (None, 8))
    assert_frame_equal(whole, shuffled, rel_tol=1e-12)
    first = replace(ctx, model=Rigged(lambda read: read[:, :1].expand_as(read)))  # predicts the first token
    whole, shuffled = (position_loss(PositionLoss(length=64, sequences=4, shuffled=n), first) for n in (None, 8))
    assert not whole.equals(shuffled)


def test_a_dry_run_has_chunks_to_exchange() -> None:
    caps = DryRun(max_steps=8, max_sequences=4, max_contexts=8, max_seeds=1, max_documents=40)
    capped = PositionLoss(length=2048, shuffled=256).capped(caps, 16)
    assert (capped.length, capped.sequences, capped.shuffled) == (128, 4, 64)
    assert PositionLoss.parse(capped.content(), "itself") == capped
    assert PositionLoss(length=2048, shuffled=32).capped(caps, 16).shuffled == 32


def test_restart_loss_agrees_with_its_definition(ctx: EvaluationContext) -> None:
    T, length = 8, 32
    table = restart_loss(RestartLoss(length=length, sequences=2, context=T), ctx)
    inputs, targets = ctx.windows(2, length, 5).read(np.arange(2), 0, length)
    assert table["position_to"].unique().sort().to_list() == [8, 16, 32]
    for row in table.iter_rows(named=True):
        naive = []
        for p in range(row["position_from"], row["position_to"]):
            # restarts are multiples of T/2, and T/2 to T tokens before the target
            start = max(0, (p // (T // 2) - 1) * (T // 2))
            assert p + 1 - start <= T
            assert p + 1 - start > T // 2
            naive.append(loss_of_context(ctx, inputs[row["sequence"], start : p + 1], int(targets[row["sequence"], p])))
        assert row["loss"] == pytest.approx(np.mean(naive), rel=1e-9)


@pytest.mark.parametrize(("T", "length"), [(8, 32), (8, 37), (4, 21), (8, 12), (8, 7), (16, 9)])
def test_restart_loss_everywhere_agrees_with_its_definition(T: int, length: int, ctx: EvaluationContext) -> None:
    """It has every target from T/2 on, in the bins of position_loss, also if the last window is shorter."""
    half = T // 2
    table = restart_loss(RestartLoss(length=length, sequences=2, context=T, everywhere=True), ctx)
    full = position_loss(PositionLoss(length=length, sequences=2), ctx).filter(pl.col("position_from") >= half)
    assert table.drop("loss").equals(full.drop("loss"))
    assert (table["position_from"].min(), table["position_to"].max()) == (half, length)
    inputs, targets = ctx.windows(2, length, 5).read(np.arange(2), 0, length)
    for row in table.iter_rows(named=True):
        window = row["sequence"]
        naive = [
            loss_of_context(ctx, inputs[window, (p // half - 1) * half : p + 1], int(targets[window, p]))
            for p in range(row["position_from"], row["position_to"])
        ]
        assert row["loss"] == pytest.approx(np.mean(naive), rel=1e-9)


@pytest.mark.parametrize(("length", "shortest"), [(32, 2), (39, 8), (16, 1)])
def test_context_loss_agrees_with_its_definition(length: int, shortest: int, ctx: EvaluationContext) -> None:
    """The targets are the last quarter of the largest power of two. More than n and at most 2n tokens are read."""
    table = context_loss(ContextLoss(length=length, sequences=2, shortest=shortest), ctx)
    end = 32 if length > 16 else 16
    contexts = [n for n in (1, 2, 4, 8, 16) if shortest <= n <= end // 2]
    assert table["context"].to_list() == 2 * contexts
    inputs, targets = ctx.windows(2, length, 5).read(np.arange(2), 0, length)
    for row in table.iter_rows(named=True):
        window, n, naive = row["sequence"], row["context"], []
        for p in range(3 * end // 4, end):
            block = min(n, end // 4)
            start = 3 * end // 4 + (p - 3 * end // 4) // block * block - n
            assert n < p + 1 - start <= 2 * n
            naive.append(loss_of_context(ctx, inputs[window, start : p + 1], int(targets[window, p])))
        assert row["loss"] == pytest.approx(np.mean(naive), rel=1e-9)


@pytest.mark.parametrize(("T", "length"), [(4, 64), (16, 64), (16, 100)])
def test_the_last_quarters_are_means_of_the_bins_everywhere(T: int, length: int, ctx: EvaluationContext) -> None:
    quarters, bins = (
        restart_loss(RestartLoss(length=length, sequences=3, context=T, everywhere=everywhere), ctx)
        for everywhere in (False, True)
    )
    full = position_loss(PositionLoss(length=length, sequences=3), ctx)
    ends = [k * T for k in octaves(T, length)]
    assert ratio_positions(quarters) == ends
    assert set(ends) <= set(ratio_positions(bins))
    for end in ratio_positions(bins):
        mean_loss(bins, 3 * end // 4, end)  # raises unless bins cover the quarter
    for end in ends:
        assert_frame_equal(paired_log_ratio(full, bins, end), paired_log_ratio(full, quarters, end), abs_tol=1e-12)


def test_a_text_shorter_than_half_a_context_has_no_targets(ctx: EvaluationContext) -> None:
    assert restart_loss(RestartLoss(length=8, sequences=2, context=16, everywhere=True), ctx).is_empty()
    assert restart_loss(RestartLoss(length=8, sequences=2, context=16), ctx).is_empty()


def test_within_the_first_context_restart_and_position_loss_agree(ctx: EvaluationContext) -> None:
    restarted = restart_loss(RestartLoss(length=64, sequences=4, context=16), ctx)
    full = position_loss(PositionLoss(length=64, sequences=4), ctx)
    first = restarted.filter(pl.col("position_to") == 16)["loss"]
    inside = full.filter((pl.col("position_from") >= 12) & (pl.col("position_to") <= 16))
    assert first.to_list() == pytest.approx(
        inside.group_by("sequence").agg(pl.col("loss").mean()).sort("sequence")["loss"].to_list()
    )


@given(st.integers(1, 100_000))
def test_bins_cover_every_length(length: int) -> None:
    edges = bin_edges(length)
    assert edges[0] == 0
    assert edges[-1] == length
    assert (np.diff(edges) > 0).all()
    for power in (2**i for i in range(2, 17) if 2**i <= length):
        assert power in edges
        assert power * 3 // 4 in edges


def test_an_octave_has_four_bins_of_the_same_length() -> None:
    assert bin_edges(33).tolist() == [*range(9), 10, 12, 14, 16, 20, 24, 28, 32, 33]


def test_octaves() -> None:
    assert octaves(32, 2048) == [1, 2, 4, 8, 16, 32, 64]
    assert octaves(32, 100) == [1, 2]


@pytest.mark.parametrize("T", [4, 16, 32])
def test_validation_loss_agrees_with_its_definition(T: int, ctx: EvaluationContext) -> None:
    """The targets are the same for every T. Each is read from the start of its block."""
    table = validation_loss(ValidationLoss(length=32, sequences=3, context=T), ctx)
    inputs, targets = ctx.windows(3, 32, 15).read(np.arange(3), 0, 32)
    naive = [
        [loss_of_context(ctx, inputs[window, p // T * T : p + 1], int(targets[window, p])) for p in range(32)]
        for window in range(3)
    ]
    assert table["sequence"].to_list() == [0, 1, 2]
    assert table["loss"].to_list() == pytest.approx(np.mean(naive, axis=1), rel=1e-9)
