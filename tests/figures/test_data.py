"""The curves of figures, compared with values computed by hand."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from figures import synthetic
from hypothesis import given
from hypothesis import strategies as st
from matplotlib.figure import Figure

from ssm.base.errors import TableError
from ssm.claims.series import Series
from ssm.figures.data import (
    Curve,
    Line,
    arms,
    differences,
    over_seeds,
    perplexity_curves,
    ratio_curves,
    read_planned,
    remembrance_curves,
    state_norm_curves,
)
from ssm.figures.figure import FigureTask
from ssm.figures.panel import CurvePanel, note_on, x_range
from ssm.figures.plots.head_std import drifting_heads
from ssm.figures.style import log_ticks, token_ticks
from ssm.specs.measurements import SCHEMAS

LOSSES = ("position_loss", "restart_loss")


def test_perplexity_is_averaged_in_nats_and_its_band_is_the_range_of_seeds(tmp_path: Path) -> None:
    synthetic.position_loss(tmp_path / "a.parquet", 64, lambda p: 1.0, offsets=(0.0, 0.2))
    synthetic.position_loss(tmp_path / "b.parquet", 64, lambda p: 2.0, offsets=(0.0, 0.4))
    task = synthetic.task(
        [{"kind": "position_curves"}],
        [synthetic.series("base", 0, position_loss="a"), synthetic.series("base", 1, position_loss="b")],
    )
    (curve,) = perplexity_curves(task, tmp_path, "tiny")
    assert curve.seeds == 2
    assert curve.x[:10].tolist() == [0.5, 1.5, 2.5, 3.5, 4.5, 5.5, 6.5, 7.5, 9, 11]
    assert curve.x[-1] == 60  # the middle of [56, 64)
    np.testing.assert_allclose(curve.y, math.exp((1.1 + 2.2) / 2))
    np.testing.assert_allclose(curve.low, math.exp(1.1))
    np.testing.assert_allclose(curve.high, math.exp(2.2))


def test_a_run_that_ends_early_shortens_the_mean_and_no_line_of_another_seed() -> None:
    rows = {0: 4, 1: 2}
    of = [Series.parse(synthetic.series("base", seed, learning_curve="a"), "test") for seed in rows]
    lines = [(one, Line(np.arange(rows[one.seed]) + 1.0, *np.full((2, rows[one.seed]), 2.0))) for one in of]
    (curve,) = over_seeds(lines)
    assert curve.x.tolist() == [1, 2]
    assert [x.tolist() for x, _ in curve.of_seeds] == [[1, 2, 3, 4], [1, 2]]
    assert x_range([curve], logarithmic=False) == (1, 4)


def test_the_band_of_one_seed_is_the_standard_error_over_sequences(tmp_path: Path) -> None:
    synthetic.position_loss(tmp_path / "a.parquet", 64, lambda p: 1.0, offsets=(0.0, 0.3, 0.6))
    task = synthetic.task([{"kind": "position_curves"}], [synthetic.series("base", 0, position_loss="a")])
    (curve,) = perplexity_curves(task, tmp_path, "tiny")
    error = 0.3 / math.sqrt(3)
    np.testing.assert_allclose(curve.low, math.exp(1.3 - error))
    np.testing.assert_allclose(curve.high, math.exp(1.3 + error))


def test_the_band_relative_to_another_arm_is_paired_by_sequence(tmp_path: Path) -> None:
    """What all arms find hard in a sequence cancels."""
    for arm, offsets in (("base", (0.0, 0.3, 0.6)), ("tbtt", (0.5, 0.8, 1.4))):
        synthetic.position_loss(tmp_path / f"{arm}.parquet", 64, lambda p: 1.0, offsets=offsets)
    series = [synthetic.series(arm, 0, position_loss=arm) for arm in ("base", "tbtt")]
    task = synthetic.task([{"kind": "position_curves"}], series)
    base, tbtt = perplexity_curves(task, tmp_path, "tiny", relative_to="base")
    np.testing.assert_allclose([base.low, base.y, base.high], 1.0)
    error = np.std([0.5, 0.5, 0.8], ddof=1) / math.sqrt(3)
    np.testing.assert_allclose(tbtt.y, math.exp(0.6))
    np.testing.assert_allclose(tbtt.high, math.exp(0.6 + error))


def test_the_paired_ratio_restarts_the_named_arm_or_each_arm_itself(tmp_path: Path) -> None:
    """The full loss is log2(position) at the ends of bins. At kT = 32, [24, 28) and [28, 32) have equal weights."""
    for arm, rise, restarted, offset in (("base", 1.0, 3.0, 0.1), ("tbtt", 0.5, 2.0, 0.5)):
        losses = tmp_path / f"p_{arm}.parquet"
        synthetic.position_loss(losses, 128, lambda p, r=rise: r * math.log2(p), offsets=(0.0, offset))
        synthetic.restart_loss(tmp_path / f"r_{arm}.parquet", 32, 128, lambda p, r=restarted: r)
    series = [synthetic.series(arm, 0, position_loss=f"p_{arm}", restart_loss=f"r_{arm}") for arm in ("base", "tbtt")]
    task = synthetic.task([{"kind": "position_curves", "ratio": True}], series)
    full = [(math.log2(7 / 8 * end) + math.log2(end)) / 2 for end in (32, 64, 128)]

    base, tbtt = ratio_curves(task, tmp_path, "tiny", "base", LOSSES, None)
    assert base.x.tolist() == tbtt.x.tolist() == [32, 64, 128]
    np.testing.assert_allclose(base.y, [math.exp(loss - 3) for loss in full])
    np.testing.assert_allclose(tbtt.y, [math.exp(0.5 * loss - 3 + 0.2) for loss in full])
    np.testing.assert_allclose(tbtt.high / tbtt.y, math.exp(0.2))  # the standard error of 0 and 0.4
    np.testing.assert_allclose(base.low, base.y)  # paired: the offsets of the sequences cancel

    base, tbtt = ratio_curves(task, tmp_path, "tiny", None, LOSSES, None)
    np.testing.assert_allclose(tbtt.y, [math.exp(0.5 * loss - 2 + 0.2) for loss in full])


def test_errors_of_differences_add_in_quadrature() -> None:
    (series,) = synthetic.task([{"kind": "position_curves"}], [synthetic.series("base", 0, position_loss="p")]).series
    own = Line(np.array([1.0, 2.0]), np.array([5.0, 6.0]), np.array([3.0, 3.0]))
    other = Line(np.array([2.0, 3.0]), np.array([1.0, 1.0]), np.array([4.0, 4.0]))
    ((_, found),) = differences([(series, own)], [(series, other)])
    assert (found.x.tolist(), found.y.tolist(), found.error.tolist()) == ([2], [5], [5])


def test_an_arm_that_was_measured_on_other_text_is_left_out_of_the_ratio(tmp_path: Path) -> None:
    for arm, offsets in (("base", (0.0, 0.25)), ("other", (0.5,))):
        synthetic.position_loss(tmp_path / f"p_{arm}.parquet", 64, lambda p: 1.0, offsets=offsets)
    synthetic.restart_loss(tmp_path / "r_base.parquet", 32, 64, lambda p: 1.0)
    series = [
        synthetic.series("base", 0, position_loss="p_base", restart_loss="r_base"),
        synthetic.series("other", 0, position_loss="p_other"),
    ]
    task = synthetic.task([{"kind": "position_curves", "ratio": True}], series)
    (base,) = ratio_curves(task, tmp_path, "tiny", "base", LOSSES, ["base"])
    assert base.arm == "base"
    with pytest.raises(TableError, match="different sequences"):
        ratio_curves(task, tmp_path, "tiny", "base", LOSSES, None)


def test_the_ratio_to_a_missing_arm_is_empty(tmp_path: Path) -> None:
    synthetic.position_loss(tmp_path / "p.parquet", 64, lambda p: 1.0)
    task = synthetic.task([{"kind": "position_curves"}], [synthetic.series("tbtt", 0, position_loss="p")])
    assert ratio_curves(task, tmp_path, "tiny", "base", LOSSES, None) == []


def test_a_diverged_seed_is_not_averaged_away(tmp_path: Path) -> None:
    synthetic.position_loss(tmp_path / "a.parquet", 64, lambda p: 1.0)
    synthetic.position_loss(tmp_path / "b.parquet", 64, lambda p: 1.0 if p <= 32 else math.nan)
    task = synthetic.task(
        [{"kind": "position_curves"}], [synthetic.series("base", s, position_loss=t) for s, t in enumerate("ab")]
    )
    (curve,) = perplexity_curves(task, tmp_path, "tiny")
    assert np.isfinite(curve.y[curve.x < 32]).all()
    assert not curve.finite()[curve.x > 32].any()
    assert curve.breaks_off()


def test_a_diverged_run_has_no_curve(tmp_path: Path) -> None:
    """Its table was measured at the last finite weights."""
    kinds = {"position_loss": "p", "restart_loss": "r", "state_statistics": "s", "effective_remembrance": "e"}
    synthetic.position_loss(tmp_path / "p.parquet", 64, lambda p: 1.0)
    synthetic.restart_loss(tmp_path / "r.parquet", 32, 64, lambda p: 1.0)
    synthetic.state_statistics(tmp_path / "s.parquet", 64, norm=lambda p: 2.0 * p)
    synthetic.remembrance(tmp_path / "e.parquet", 64, lambda t: t / 64, ["total_variation"])
    task = synthetic.task([{"kind": "position_curves"}], [synthetic.series("base", 0, **kinds)])
    sound = [curve.x for curve in all_curves(task, tmp_path)]
    for kind, table in kinds.items():
        synthetic.diverge(tmp_path / f"{table}.parquet", kind)
    for curve, x in zip(all_curves(task, tmp_path), sound, strict=True):
        np.testing.assert_array_equal(curve.x, x)  # the keys stay
        assert np.isnan([curve.y, curve.low, curve.high]).all()


def test_only_keys_of_a_diverged_run_are_read(tmp_path: Path) -> None:
    """Answers and classes become null."""
    answers = [{"length": 64, "depth": 0.5, "trial": t, "correct": True, "digits_right": 5} for t in range(2)]
    synthetic.save(tmp_path / "a.parquet", "passkey", answers)
    synthetic.length_class(tmp_path / "c.parquet", "strong", -0.1)
    task = synthetic.task([{"kind": "state_norm"}], [])
    assert read_planned(task, tmp_path, "a", "passkey").to_dicts() == answers
    synthetic.diverge(tmp_path / "a.parquet", "passkey")
    synthetic.diverge(tmp_path / "c.parquet", "length_class")
    asked = read_planned(task, tmp_path, "a", "passkey")
    assert asked.to_dicts() == [row | {"correct": None, "digits_right": None} for row in answers]
    assert asked.schema == SCHEMAS["passkey"].columns
    (row,) = read_planned(task, tmp_path, "c", "length_class").to_dicts()
    assert math.isnan(row["excess"])
    assert (row["class"], row["generalizes"], row["extends_from"], row["context"]) == (None, None, None, 32)


@pytest.mark.parametrize("kind", SCHEMAS)
def test_every_measurement_declares_its_keys(kind: str) -> None:
    """All other columns are values, which a diverged run does not have."""
    schema = SCHEMAS[kind]
    assert schema.keys
    assert set(schema.keys) < set(schema.columns)
    assert schema.sample in (None, *schema.keys)


def all_curves(task: FigureTask, tables: Path) -> list[Curve]:
    return [
        *perplexity_curves(task, tables, "tiny"),
        *ratio_curves(task, tables, "tiny", None, LOSSES, None),
        *state_norm_curves(task, tables, "tiny", "state_statistics"),
        *remembrance_curves(task, tables, "tiny", "total_variation", "effective_remembrance"),
    ]


def test_state_norm_and_remembrance_are_means_over_sequences(tmp_path: Path) -> None:
    synthetic.state_statistics(tmp_path / "s.parquet", 64, norm=lambda p: 2.0 * p)
    synthetic.remembrance(tmp_path / "e.parquet", 64, lambda t: t / 64, ["total_variation", "jensen_shannon"])
    task = synthetic.task(
        [{"kind": "state_norm"}], [synthetic.series("base", 0, state_statistics="s", effective_remembrance="e")]
    )
    (norm,) = state_norm_curves(task, tmp_path, "tiny", "state_statistics")
    assert norm.x.tolist() == [4, 8, 16, 32, 64]
    np.testing.assert_allclose(norm.y, 2 * norm.x)
    (curve,) = remembrance_curves(task, tmp_path, "tiny", "jensen_shannon", "effective_remembrance")
    np.testing.assert_allclose(curve.y, 0.8 * curve.x / 64, atol=1e-12)
    with pytest.raises(TableError, match="one_minus_cosine"):
        remembrance_curves(task, tmp_path, "tiny", "one_minus_cosine", "effective_remembrance")


def test_arms_keep_the_order_of_the_plan() -> None:
    named = {name: {"label": name, "training": "pretrain"} for name in ("t128", "t16", "t32")}
    figure = {"arms": named, "models": ["tiny"], "data": "text", "seeds": [0]}
    series = [synthetic.series(name, seed) for name in ("t16", "t32", "t128") for seed in (0, 1)]
    task = synthetic.task([{"kind": "position_curves"}], series, collect=[], **figure)
    assert arms(task) == ["t16", "t32", "t128"]


def test_a_measurement_is_drawn_by_its_name(tmp_path: Path) -> None:
    for name, norm in (("short", 2.0), ("long", 3.0)):
        synthetic.state_statistics(tmp_path / f"{name}.parquet", 64, norm=lambda p, norm=norm: norm)
    series = [synthetic.series("base", 0, state_statistics="short", far="long")]
    for plot, drawn in (({}, 2.0), ({"measurement": "far"}, 3.0)):
        task = synthetic.task([{"kind": "state_norm"} | plot], series)
        (curve,) = state_norm_curves(task, tmp_path, "tiny", *task.figure.drawings[0].measurement_names)
        np.testing.assert_allclose(curve.y, drawn)
        assert task.figure.drawings[0].content() == {"kind": "state_norm"} | plot


def test_the_heads_that_drift_most_are_chosen(tmp_path: Path) -> None:
    def std(layer: int, head: int, position: float) -> float:
        growth = {(0, 1): 3.0, (1, 0): 5.0, (0, 0): 1.1, (1, 1): math.nan}[layer, head]
        return 7.0 if position <= 32 else 7.0 * growth  # the choice does not depend on the size

    synthetic.state_statistics(tmp_path / "s.parquet", 128, norm=lambda p: 1.0, std=std)
    task = synthetic.task([{"kind": "state_norm"}], [synthetic.series("base", 0, state_statistics="s")])
    table = read_planned(task, tmp_path, "s", "state_statistics")
    assert drifting_heads(table, context=32, heads=2) == [(0, 1), (1, 0)]
    assert drifting_heads(table, context=32, heads=3) == [(0, 0), (0, 1), (1, 0)]


def test_the_error_for_a_missing_table_has_its_command(tmp_path: Path) -> None:
    task = synthetic.task([{"kind": "position_curves"}], [synthetic.series("base", 0, position_loss="gone")])
    with pytest.raises(TableError) as caught:
        perplexity_curves(task, tmp_path / "tables", "tiny")
    text = str(caught.value)
    assert "gone.parquet" in text
    assert "snakemake --cores all lg_fig5 --config scale=smoke" in text
    assert "ssm evaluate" not in text, "it would also need the run, and its tokens"
    assert "\n" not in text


@given(st.lists(st.floats(-5, 5), min_size=1, max_size=5))
def test_the_mean_over_seeds_is_inside_its_band(values: list[float]) -> None:
    lines = [
        (_series(seed), Line(np.array([1.0]), np.array([value]), np.array([0.1]))) for seed, value in enumerate(values)
    ]
    (curve,) = over_seeds(lines)
    assert curve.low[0] - 1e-12 <= curve.y[0] <= curve.high[0] + 1e-12
    assert curve.y[0] == pytest.approx(np.mean(values))


@pytest.mark.parametrize(
    ("seeds", "low", "high", "band"),
    [
        (9, 0, 8, "range over seeds"),
        (10, 1, 8, "range over seeds without the outer tenths"),
        (24, 2, 21, "range over seeds without the outer tenths"),
    ],
)
def test_a_band_leaves_out_the_highest_and_the_lowest_tenth_of_seeds(
    seeds: int, low: int, high: int, band: str
) -> None:
    values = np.random.default_rng(0).permutation(seeds)
    lines = [
        (_series(seed), Line(np.array([1.0]), np.array([value]), np.array([0.1]))) for seed, value in enumerate(values)
    ]
    (curve,) = over_seeds(lines)
    assert (curve.low[0], curve.high[0]) == (low, high)
    assert note_on([curve]) == f"Line: mean over {seeds} seeds. Band: {band}"


@pytest.mark.parametrize(("drawn", "inside"), [("band", False), ("dots", True), ("lines", True)])
def test_a_panel_shows_all_of_each_seed_that_it_draws(drawn: Any, inside: bool) -> None:
    """The band of 20 seeds leaves out one that spikes."""
    x = np.array([1.0, 2.0])
    lines = [(_series(seed), Line(x, np.array([1.0, 10.0 if seed == 7 else 1.0]), x)) for seed in range(20)]
    limits = CurvePanel(over_seeds(lines), {}, "", "x", "y", (1, 2), seeds=drawn).fit()
    assert limits is not None
    assert (limits[1] > 10) == inside


@given(st.floats(1e-6, 1e6), st.floats(1.02, 1e6))
def test_log_ticks_are_inside_and_few(low: float, factor: float) -> None:
    ticks = log_ticks(low, low * factor)
    assert 2 <= len(ticks) <= 6
    assert all(low * 0.999 <= tick <= low * factor * 1.001 for tick in ticks)
    assert ticks == sorted(set(ticks))


@pytest.mark.parametrize(
    ("ticks", "labels"),
    [
        ((16_000.0, 50_000.0), ["16k", "50k"]),
        ((512.0, 2048.0), ["512", "2k"]),
        ((0.5, 1000.0), ["0.5", "1k"]),
        ((8.0, 64_000.0), ["8", "64k"]),
        (tuple(2.0**i for i in range(11)), ["1", "4", "16", "64", "256", "1k"]),  # more than fit: every other one
    ],
)
def test_ticks_in_powers_of_two_count_in_units_of_1024(ticks: tuple[float, ...], labels: list[str]) -> None:
    panel = CurvePanel([], {}, "", "x", "y", (ticks[0], ticks[-1]), ticks=ticks, tokens=False)
    axes = Figure().add_subplot()
    panel(axes, 1)
    assert [label.get_text() for label in axes.get_xticklabels()] == labels


@given(st.integers(0, 12), st.integers(3, 17), st.integers(3, 10))
def test_token_ticks_include_the_training_context(context: int, octaves: int, most: int) -> None:
    low, high = 2.0 ** max(0, context - 3), 2.0 ** (context + octaves)
    ticks = token_ticks(low, high, through=2**context, most=most)
    assert 2**context in ticks
    assert 1 <= len(ticks) <= most


def _series(seed: int) -> Series:
    return Series.model_validate(synthetic.series("base", seed))
