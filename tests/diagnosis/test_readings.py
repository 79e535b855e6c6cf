"""The numbers of a diagnosis, compared with plain formulas and with the known truth of the tables."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace

import numpy as np
import polars as pl
import pytest
from diagnosis.fabricated import (
    CONTEXT,
    LENGTH,
    TOLERANCE,
    bump,
    diagnosis,
    everything,
    facts,
    fails_from,
    holds,
    losses,
    needles,
    passkeys,
    prompts,
    remembrance,
    states,
    tables,
)
from scipy import stats

from ssm.base.errors import TableError
from ssm.diagnosis.heads import drift
from ssm.diagnosis.intervals import cautious, exponential, mean, share, wilson
from ssm.diagnosis.readings import (
    bits_per_byte,
    failure_position,
    memory,
    perplexity,
    ratios,
    read,
    recalled,
    remembrance_at,
)
from ssm.diagnosis.result import Interval
from ssm.diagnosis.verdict import digits
from ssm.specs.measurements.decay_range import DecayRange
from ssm.specs.measurements.memory_length import MemoryLength


def excess_at(full: pl.DataFrame, restarted: pl.DataFrame, start: int, stop: int) -> np.ndarray:
    """Mean excess of every sequence on [start, stop), computed token by token."""
    found = []
    for table in (full, restarted):
        inside = table.filter(pl.col("position_from") >= start, pl.col("position_to") <= stop).sort(
            "sequence", "position_from"
        )
        losses = inside["loss"].to_numpy().reshape(table["sequence"].n_unique(), -1)
        tokens = (inside["position_to"] - inside["position_from"]).to_numpy()[: losses.shape[1]]
        found.append(np.average(losses, axis=1, weights=tokens))
    return found[0] - found[1]


@pytest.mark.parametrize(
    ("sequences", "looks", "shares"),
    [(12, 1, (4, 4)), (12, 5, (20, 20)), (63, 1, (4, 4)), (64, 1, (4, 12)), (64, 5, (20, 20))],
)
def test_ratios_have_student_intervals_at_a_shared_level(sequences: int, looks: int, shares: tuple[int, int]) -> None:
    """Lower ends, and upper ends. From 64 windows on a model may hold, and upper ends share their level among 12."""
    full, restarted = losses(4, fails_from(3100), sequences=sequences)
    found = ratios(full, restarted, CONTEXT, looks)
    assert list(found) == [4096, 8192, 16384, 32768]
    for stop, ratio in found.items():
        excess = excess_at(full, restarted, 3 * stop // 4, stop)
        assert ratio.value == pytest.approx(math.exp(excess.mean()))
        t = stats.t.ppf(1 - 0.025 / np.array(shares), sequences - 1)
        ends = excess.mean() + np.array([-1, 1]) * t * stats.sem(excess)
        assert (ratio.low, ratio.high) == pytest.approx(tuple(np.exp(ends)))


def test_a_length_between_octaves_has_its_own_ratio() -> None:
    full, restarted = losses(4, fails_from(3100), length=24576)
    found = ratios(full, restarted, CONTEXT)
    assert list(found) == [4096, 8192, 16384, 24576]
    excess = excess_at(full, restarted, 20480, 24576)  # 20480: the first edge of a bin after three quarters, 18432
    assert found[24576].value == pytest.approx(math.exp(excess.mean()))


def test_one_sequence_decides_nothing() -> None:
    full, restarted = losses(4, fails_from(3100), sequences=1)
    assert all((ratio.low, ratio.high) == (0.0, math.exp(700)) for ratio in ratios(full, restarted, CONTEXT).values())
    failure = failure_position(full, restarted, TOLERANCE)
    assert failure is not None
    assert (failure.low, failure.high) == (-math.inf, math.inf)


def test_equal_losses_hold_exactly() -> None:
    full, restarted = losses(4, lambda octave: np.zeros_like(octave), apart=0.0)
    assert {(r.value, r.low, r.high) for r in ratios(full, restarted, CONTEXT).values()} == {(1.0, 1.0, 1.0)}


def test_tables_of_other_sequences_are_refused() -> None:
    full, restarted = losses(4, sequences=8)
    other = restarted.filter(pl.col("sequence") < 7)
    with pytest.raises(TableError, match="different sequences"):
        ratios(full, other, CONTEXT)
    with pytest.raises(TableError, match="different sequences"):
        failure_position(full, other, TOLERANCE)


@pytest.mark.parametrize(("onset", "sequences"), [(3100, 32), (9000, 32), (3100, 16)])
def test_the_failure_is_found_inside_its_interval(onset: float, sequences: int) -> None:
    inside, values = 0, []
    for seed in range(100):
        failure = failure_position(*losses(seed, fails_from(onset), sequences), TOLERANCE)
        assert failure is not None
        assert failure.low <= failure.value <= failure.high
        inside += failure.low <= onset <= failure.high
        values.append(failure.value)
    assert inside >= 88
    assert np.median(values) == pytest.approx(onset, rel=0.05)


def test_the_interval_narrows_with_sequences() -> None:
    widths = []
    for sequences in (8, 128):
        failure = failure_position(*losses(1, fails_from(3100), sequences), TOLERANCE)
        assert failure is not None
        widths.append(math.log2(failure.high / failure.low))
    assert widths[0] > 2 * widths[1]


def test_few_sequences_have_expanded_percentiles() -> None:
    """Each excess is a line, so that the position is linear in it. Plain percentiles are 25% too narrow."""
    full, restarted = losses(0, np.zeros_like, sequences=8, apart=0.0)
    shifts, slope = 0.1 * stats.norm.ppf((np.arange(8) + 0.5) / 8), 0.5  # nats, nats for each octave
    octaves = ((pl.col("position_from") + pl.col("position_to")) / 2).log(2)
    shift = pl.lit(pl.Series(shifts)).gather("sequence")
    failure = failure_position(full.with_columns(pl.col("loss") + slope * (octaves - 13) + shift), restarted, TOLERANCE)
    assert failure is not None
    half = stats.t.ppf(0.975, 7) * stats.sem(shifts) / slope
    assert math.log2(failure.value) == pytest.approx(13 + math.log(TOLERANCE) / slope)
    assert math.log2(failure.high / failure.low) / 2 == pytest.approx(half, rel=0.05)


def test_a_model_that_holds_has_no_failure() -> None:
    assert failure_position(*losses(2), TOLERANCE) is None


def test_a_model_that_recovers_fails_where_it_begins_to_fail() -> None:
    full, restarted = losses(2, bump)
    failure = failure_position(full, restarted, TOLERANCE)
    assert failure is not None
    assert failure.low <= 4096 <= failure.high < 6000
    assert ratios(full, restarted, CONTEXT)[32768].high < TOLERANCE


def test_a_model_that_fails_at_once_fails_at_its_context() -> None:
    """Up to its context the restarted model is the same model, also if interpolation gives an earlier position."""
    failure = failure_position(*losses(0, lambda octave: np.full_like(octave, 3.0)), TOLERANCE)
    assert failure is not None
    assert (failure.low, failure.value, failure.high) == (CONTEXT, CONTEXT, CONTEXT)


def test_an_interval_may_end_beyond_what_was_measured() -> None:
    found = [failure_position(*losses(seed, fails_from(30000), sequences=8, apart=0.4), TOLERANCE) for seed in range(9)]
    highs = [failure.high for failure in found if failure is not None]
    assert math.inf in highs
    assert all(high == math.inf or high < LENGTH for high in highs)


def test_a_model_fails_where_its_loss_is_not_a_number() -> None:
    full, restarted = losses(5)
    broken = full.with_columns(loss=pl.when(pl.col("position_from") >= 8192).then(math.nan).otherwise("loss"))
    failure = failure_position(broken, restarted, TOLERANCE)
    assert failure is not None
    assert (failure.value, failure.low, failure.high) == (8192, 8192, 8192)
    found = ratios(broken, restarted, CONTEXT)
    assert math.isfinite(found[8192].value)
    assert math.isnan(found[16384].value)
    given = everything(5)
    readings = read(type(given)(broken, restarted, given.length_class), facts())
    assert readings.not_finite_from == 8192
    assert math.isnan(readings.far.value)


@pytest.mark.parametrize("interval", [mean, share, exponential, cautious])
def test_values_with_a_nan_have_no_interval(interval: Callable[[np.ndarray], Interval]) -> None:
    found = interval(np.array([0.5, math.nan, 0.25]))
    assert math.isnan(found.value)
    assert (found.low, found.high) == (-math.inf, math.inf)


def test_perplexity_is_the_exponential_of_the_mean_loss() -> None:
    full, _ = losses(6, sequences=9)
    zero = full.with_columns(loss=pl.lit(0.0))
    excess = excess_at(full, zero, 1024, 2048)
    found = perplexity(full, 1024, 2048)
    low, high = stats.t.interval(0.95, 8, excess.mean(), stats.sem(excess))
    assert (found.value, found.low, found.high) == pytest.approx(np.exp([excess.mean(), low, high]))


def spelled(full: pl.DataFrame, bytes_a_token: np.ndarray) -> pl.DataFrame:
    """A table with the same number of bytes for all tokens of a sequence."""
    size = (pl.col("position_to") - pl.col("position_from")) * pl.lit(pl.Series(bytes_a_token)).gather("sequence")
    return full.select("sequence", "position_from", "position_to", bytes=size.cast(pl.Float64))


def test_bits_per_byte_equal_bits_per_token_if_a_token_is_a_byte() -> None:
    full, _ = losses(6, sequences=9)
    found, plain = bits_per_byte(full, spelled(full, np.ones(9)), 1024, 2048), perplexity(full, 1024, 2048)
    assert (found.value, found.low, found.high) == pytest.approx(np.log2([plain.value, plain.low, plain.high]))


def test_bits_per_byte_are_a_ratio_of_sums() -> None:
    """A window with many bytes has a larger weight. The interval is close to a bootstrap."""
    full, _ = losses(6, sequences=400)
    generator = np.random.default_rng(2)
    tokens = generator.normal(4.0, 0.5, 400)
    found = bits_per_byte(full, spelled(full, tokens), 24576, 32768)
    nats = excess_at(full, full.with_columns(loss=pl.lit(0.0)), 24576, 32768)
    assert found.value == pytest.approx(nats.sum() / tokens.sum() / math.log(2))
    rows = generator.integers(0, 400, (2000, 400))
    draws = np.quantile(nats[rows].sum(1) / tokens[rows].sum(1) / math.log(2), [0.025, 0.975])
    assert (found.low, found.high) == pytest.approx(tuple(draws), abs=0.1 * (found.high - found.low))
    lost = full.with_columns(loss=pl.lit(math.nan))
    assert math.isnan(bits_per_byte(lost, spelled(full, tokens), 24576, 32768).value)


def test_readings_and_verdict_have_bits_per_byte() -> None:
    given = tables(0)
    found = diagnosis(replace(given, spelled_bytes=spelled(given.position_loss, np.full(64, 4.0))))
    inside, far = found.readings.in_context_bits, found.readings.far_bits
    assert inside is not None
    assert far is not None
    assert inside.value == pytest.approx(math.log2(found.readings.in_context.value) / 4)
    assert far.value == pytest.approx(math.log2(found.readings.far.value) / 4)
    said = f"A byte of text costs {digits(inside.value)} bits inside the context and {digits(far.value)} near 32,768"
    assert said in found.verdict.paragraph
    assert diagnosis(given).readings.far_bits is None


def test_the_map_shows_every_head_in_its_layer() -> None:
    growth = np.full((3, 4), 1.5)
    growth[2, 1], growth[0, 3] = 3.0, 0.5
    found = drift(states(growth), CONTEXT)
    assert found.map is not None
    assert (found.map.together, found.map.layers) == (1, (0, 1, 2))
    np.testing.assert_allclose(found.map.growth, growth, rtol=0.05)
    assert np.array(found.map.drifting).nonzero() == ([2], [1])
    assert found.by_layer == {2: 1}


def test_many_heads_share_columns_that_show_the_largest_growth() -> None:
    growth = np.ones((2, 130))
    growth[1, 128] = 4.0
    found = drift(states(growth), CONTEXT).map
    assert found is not None
    assert found.together == 3
    assert [len(row) for row in found.growth] == [44, 44]
    assert found.growth[1][42] == pytest.approx(4.0, rel=0.1)
    assert found.drifting[1][42]
    assert sum(map(sum, found.drifting)) == 1


def test_layers_may_have_different_numbers_of_heads() -> None:
    table = states(np.ones((2, 3))).filter((pl.col("layer") != 0) | (pl.col("head") < 2))
    found = drift(table, CONTEXT).map
    assert found is not None
    assert [len(row) for row in found.growth] == [2, 3]


def test_one_head_of_many_drifts() -> None:
    growth = np.full((6, 8), 1.5)
    growth[4, 3] = 3.0
    found = drift(states(growth), CONTEXT)
    assert read(tables(0, state_statistics=states(growth)), facts()).drift == found
    assert (found.heads, found.drifting) == (48, 1)
    assert (found.top[0].layer, found.top[0].head) == (4, 3)
    assert found.top[0].growth.value == pytest.approx(3.0, rel=0.05)
    assert len(found.top) == 10
    assert [head.growth.value for head in found.top] == sorted((h.growth.value for h in found.top), reverse=True)


def test_growth_has_the_interval_of_the_delta_method() -> None:
    table = states(np.array([[2.5]]), sequences=8)
    head = table.filter(pl.col("layer") == 0).sort("sequence")
    early, late = (head.filter(pl.col("position") == position)["std"].to_numpy() for position in (CONTEXT, LENGTH))
    parts = late / late.mean() - early / early.mean()
    half = stats.t.ppf(0.975, 7) * stats.sem(parts)
    value = math.log(late.mean() / early.mean())
    growth = drift(table, CONTEXT).top[0].growth
    assert (growth.low, growth.high) == pytest.approx((math.exp(value - half), math.exp(value + half)))


def test_a_head_that_may_have_doubled_does_not_drift() -> None:
    """Two heads have a mean growth of 3: one in every sequence, the other in some of them."""
    table = states(np.array([[2.0, 3.0, 3.0]]), sequences=4)
    late, by = pl.col("position") > CONTEXT, pl.when(pl.col("sequence") == 0).then(3.0).otherwise(1 / 3)
    apart = table.with_columns(std=pl.when(late & (pl.col("head") == 2)).then(pl.col("std") * by).otherwise("std"))
    found = drift(apart, CONTEXT)
    assert found.map is not None
    assert found.map.drifting == ((False, True, False),)
    assert all(growth > 1.9 for growth in found.map.growth[0])


def test_heads_with_equal_growth_keep_their_order_and_constant_ones_come_last() -> None:
    table = states(np.ones((2, 3)))
    same = table.with_columns(std=pl.when(pl.col("layer") == 0).then(0.0).otherwise(1.0))
    found = drift(same, CONTEXT)
    assert [(head.layer, head.head) for head in found.top] == [(1, 0), (1, 1), (1, 2), (0, 0), (0, 1), (0, 2)]
    assert found.drifting == 0
    assert [head.growth.value for head in found.top[:3]] == [1.0, 1.0, 1.0]
    assert math.isnan(found.top[3].growth.value)


def test_a_state_that_becomes_nan_drifts() -> None:
    table = states(np.ones((1, 3)))
    lost = (pl.col("head") == 1) & (pl.col("position") > 4096)
    found = drift(table.with_columns(std=pl.when(lost).then(math.inf).otherwise("std")), CONTEXT)
    assert found.drifting == 1
    assert found.top[0].head == 1
    assert math.isnan(found.top[0].growth.value)
    assert found.map is not None
    assert math.isnan(found.map.growth[0][1])
    assert found.map.drifting == ((False, True, False),)


def test_heads_without_a_growth_are_counted_apart() -> None:
    """At T, one head is constant and another is no number. The state of two more ends at zero and in NaN."""
    late, head = pl.col("position") > 4096, pl.col("head")
    table = states(np.ones((1, 5))).with_columns(
        std=pl.when(head == 0)
        .then(pl.when(late).then(1.0).otherwise(0.0))
        .when(head == 1)
        .then(math.nan)
        .when((head == 2) & late)
        .then(0.0)
        .when((head == 3) & late)
        .then(math.nan)
        .otherwise("std")
    )
    found = drift(table, CONTEXT)
    assert (found.heads, found.measured, found.unmeasured, found.by_layer) == (5, 3, 2, {0: 1})
    assert found.map is not None
    assert found.map.drifting == ((False, False, False, True, False),)
    np.testing.assert_allclose(found.map.growth, [[math.nan, math.nan, 0.0, math.nan, 1.0]], rtol=0.05)


@pytest.mark.parametrize(("at_the_end", "shown"), [(1.0, 1.5), (math.nan, math.nan)])
def test_a_column_shows_a_head_that_is_lost_but_none_without_a_growth(at_the_end: float, shown: float) -> None:
    """A constant head starts to vary. It shares its column with a head that grows, or that is lost."""
    late, head = pl.col("position") > 4096, pl.col("head")
    table = states(np.full((1, 130), 1.5)).with_columns(
        std=pl.when(head == 0)
        .then(pl.when(late).then(1.0).otherwise(0.0))
        .when((head == 1) & late)
        .then(pl.col("std") * at_the_end)
        .otherwise("std")
    )
    found = drift(table, CONTEXT).map
    assert found is not None
    assert found.drifting[0][0] == math.isnan(shown)
    np.testing.assert_allclose(found.growth[0][0], shown, rtol=0.05)


def test_remembrance_is_measured_with_the_context_kept() -> None:
    table = remembrance(0.4, sequences=5)
    values = 0.4 * np.linspace(0.9, 1.1, 5)
    low, high = stats.t.interval(0.95, 4, values.mean(), stats.sem(values))
    found = remembrance_at(table, CONTEXT)
    assert (found.value, found.low, found.high) == pytest.approx((0.4, low, high))
    assert found.value > remembrance_at(table, 2 * CONTEXT).value


@pytest.mark.parametrize(("successes", "trials"), [(0, 8), (3, 8), (8, 8), (40, 50)])
def test_wilson(successes: int, trials: int) -> None:
    found = wilson(successes, trials)
    expected = stats.binomtest(successes, trials).proportion_ci(method="wilson")
    assert found.value == successes / trials
    assert (found.low, found.high) == pytest.approx((expected.low, expected.high))


def test_passkeys_are_counted_by_length_and_depth() -> None:
    keys = passkeys(lambda length, depth: 8 if depth == 1 else 2 if length == 4096 else 0)
    cells = recalled(keys, "depth", "correct")
    assert len(cells) == 6 * 5
    assert {cell.trials for cell in cells} == {8}
    by_place = {(cell.length, cell.depth): cell.accuracy.value for cell in cells}
    assert by_place[1024, 1.0] == by_place[32768, 1.0] == 1.0
    assert by_place[4096, 0.25] == 0.25
    assert by_place[8192, 0.0] == 0.0
    assert read(tables(0, passkey=keys), facts()).passkey == cells


def test_needles_count_preferred_answers() -> None:
    """The generated text does not matter."""
    table = needles(lambda length, depth: 8 if depth == 1 else 2).with_columns(generated_all=True, forced_all=False)
    cells = read(tables(0, accuracy=table), facts()).needle
    assert len(cells) == 6 * 5
    assert {cell.accuracy.value for cell in cells if cell.depth == 1} == {1.0}
    assert {cell.accuracy.value for cell in cells if cell.depth < 1} == {0.25}


def test_rulers_prompts_are_counted_by_task() -> None:
    table = pl.concat([needles(lambda length, depth: 8 if depth == 1 else 2), prompts()], how="diagonal")
    readings = read(tables(0, accuracy=table), facts())
    assert readings.needle == read(tables(0, accuracy=table.filter(pl.col("group") == "capital")), facts()).needle
    cells = {(cell.task, cell.length): cell.accuracy.value for cell in readings.ruler}
    assert list(cells) == [(task, n) for task in ("niah_single_1", "vt") for n in (2048, 4096)]
    assert cells == {
        ("niah_single_1", 2048): 1.0,
        ("niah_single_1", 4096): 0.25,
        ("vt", 2048): 0.0,
        ("vt", 4096): 0.0,
    }
    assert {cell.trials for cell in readings.ruler} == {8}
    assert read(tables(0, accuracy=prompts()), facts()).needle == ()


def test_memory_counts_states_that_forget_soon_or_late_or_cannot_select() -> None:
    """T is 2,048 and L is 32,768, so "recent" is 128 tokens and "kept" 32,768."""
    spread = (-0.1, 0.0, 0.1)
    places = [(n, layer) for n in range(3) for layer in (0, 1)]
    rows = [(n, layer, 2**i, i / 20 + spread[n] * (layer == 0)) for n, layer in places for i in range(21)]
    lengths = pl.DataFrame(rows, schema=MemoryLength.table.columns, orient="row")
    shares = [(n, layer, k / 50, (k / 50 + spread[n]) * (1 - layer), 1.0) for n, layer in places for k in range(51)]
    ranges = pl.DataFrame(shares, schema=DecayRange.table.columns, orient="row")
    found = memory(lengths, ranges, CONTEXT, LENGTH)
    assert (found.recent_tokens, found.kept_tokens) == (128, 32768)
    half = stats.t.ppf(0.975, 2) * 0.1 / np.sqrt(3)
    for part, expected in ((found.recent, 7 / 20), (found.kept, 5 / 20), (found.narrow, 0.5)):
        assert part.value == pytest.approx(expected)
        assert (part.low, part.high) == (pytest.approx(max(0, expected - half)), pytest.approx(expected + half))
    assert read(tables(0, memory_length=lengths, decay_range=ranges), facts()).memory == found
    assert memory(lengths, ranges, 8, 9000).kept_tokens == 16384
    assert memory(lengths, ranges, 8, 2**24).kept_tokens == 2**20, "not beyond the table"


def test_missing_tables_give_no_readings() -> None:
    given = everything(0, holds)
    readings = read(type(given)(given.position_loss, given.restart_loss, given.length_class), facts())
    assert (readings.drift, readings.remembrance, readings.memory) == (None, None, None)
    assert (readings.passkey, readings.needle) == ((), ())
    assert (readings.ruler, readings.effective_length, readings.in_context_bits) == ((), None, None)
    assert readings.not_finite_from is None
    assert (readings.length_class, readings.generalizes) == ("strong", True)
