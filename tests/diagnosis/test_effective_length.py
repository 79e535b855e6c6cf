"""The effective length of models with a known gain."""

from __future__ import annotations

import math

import numpy as np
import polars as pl
import pytest
from diagnosis.fabricated import diagnosis, tables
from scipy import stats

from ssm.diagnosis.readings import LITTLE, effective_length
from ssm.diagnosis.result import EffectiveLength, Interval
from ssm.diagnosis.verdict import length_words
from ssm.specs.measurements.context_loss import ContextLoss

CONTEXTS = [2**power for power in range(5, 15)]  # 32 to 16,384


def losses(gains: dict[int, float], noise: float = 0.002, sequences: int = 16) -> pl.DataFrame:
    """Losses that fall by `gains[n]` nats from n to 2n tokens. The spread of the text is much larger."""
    generator = np.random.default_rng(1)
    own = generator.normal(2.5, 0.3, (sequences, 1))
    fall = np.cumsum([0.0, *(gains.get(n, 0.0) for n in CONTEXTS[:-1])])
    values = own - fall + generator.normal(0, noise, (sequences, len(CONTEXTS)))
    columns = (np.repeat(np.arange(sequences), len(CONTEXTS)), np.tile(CONTEXTS, sequences), values.flatten())
    return pl.DataFrame(dict(zip(ContextLoss.table.columns, columns, strict=True)), schema=ContextLoss.table.columns)


def test_at_least_is_the_last_context_with_a_certain_gain() -> None:
    found = effective_length(losses({32: 0.2, 64: 0.1, 128: 0.05, 256: 0.02}))
    assert (found.at_least, found.at_most) == (256, 512)
    assert found.gains[128].value == pytest.approx(math.exp(0.05), abs=0.002)


def test_gains_are_paired_intervals_at_a_shared_level() -> None:
    table = losses({32: 0.1}, sequences=9)
    values = table["loss"].to_numpy().reshape(9, -1)
    found = effective_length(table).gains
    assert list(found) == CONTEXTS[:-1]
    for i, gain in enumerate(found.values()):
        steps = values[:, i] - values[:, i + 1]
        low, high = stats.t.interval(1 - 0.05 / 9, 8, steps.mean(), stats.sem(steps))
        assert (gain.value, gain.low, gain.high) == pytest.approx(np.exp([steps.mean(), low, high]))


def test_a_gap_does_not_end_the_effective_length_and_harm_does_not_count() -> None:
    found = effective_length(losses({32: 0.2, 1024: 0.05, 4096: -0.3}))
    assert (found.at_least, found.at_most) == (1024, 2048)


def test_a_possible_gain_of_a_percent_is_not_decided() -> None:
    found = effective_length(losses({32: 0.2, 8192: 0.03}, noise=0.05))
    assert found.at_least == 32
    assert found.at_most is None
    assert found.gains[8192].high > LITTLE


def test_a_certain_gain_below_a_percent_is_at_least_and_its_double_at_most() -> None:
    found = effective_length(losses({32: 0.2, 2048: 0.006}, noise=0.001))
    assert (found.at_least, found.at_most) == (2048, 4096)
    last = effective_length(losses({8192: 0.006}, noise=0.001))
    assert (last.at_least, last.at_most) == (8192, None), "nothing was read beyond"


def test_nothing_helps() -> None:
    found = effective_length(losses({}, noise=0.001))
    assert (found.at_least, found.at_most) == (None, 32)
    lost = losses({32: 0.2}).with_columns(loss=pl.lit(math.nan))
    assert effective_length(lost).at_least is effective_length(lost).at_most is None
    one = effective_length(losses({32: 0.2}, sequences=1))
    assert (one.at_least, one.at_most) == (None, None), "one window gives no interval"


@pytest.mark.parametrize(
    ("ends", "said"),
    [
        (
            (256, 512),
            "Text more than 256 tokens back still lowers its loss. From 512 tokens on, reading twice as many lowers "
            "its perplexity by less than 1%.",
        ),
        (
            (2048, None),
            "Text more than 2,048 tokens back still lowers its loss. It is not decided how much further back it does.",
        ),
        ((None, 32), "From 32 tokens on, reading twice as many lowers its perplexity by less than 1%."),
        ((None, None), "It is not decided how far back text lowers its loss."),
    ],
)
def test_words(ends: tuple[int | None, int | None], said: str) -> None:
    assert length_words(EffectiveLength(*ends, {32: Interval(1.0, 0.9, 1.1)})) == said


def test_words_of_a_history_that_does_harm() -> None:
    found = effective_length(losses({32: 0.2, 1024: -0.3}))
    assert (found.at_least, found.at_most) == (32, 64)
    assert length_words(found).endswith("reading twice as many lowers its perplexity by less than 1%, or raises it.")


def test_the_verdict_names_the_effective_length() -> None:
    found = diagnosis(tables(0, context_loss=losses({32: 0.2, 64: 0.1})))
    assert found.readings.effective_length == effective_length(losses({32: 0.2, 64: 0.1}))
    assert "Text more than 64 tokens back still lowers its loss. From 128 tokens on" in found.verdict.paragraph
