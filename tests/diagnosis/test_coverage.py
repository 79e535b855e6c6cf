"""How often a verdict is wrong, for simulated models with a known ratio.

The simulation draws the excess of every window: its loss minus the loss after a restart, in nats. The true ratio is exp
of the mean excess. The tolerance is 1.1: 0.095 nats.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, replace
from math import log
from typing import Any

import numpy as np
import polars as pl
import pytest

from ssm.diagnosis import sampling
from ssm.diagnosis.outcome import BREAKS, HOLDS, NOT_DECIDED, outcome_of
from ssm.diagnosis.readings import failure_position, ratios
from ssm.specs.diagnosis import ENOUGH, DiagnosisSpec
from ssm.specs.diagnosis_defaults import TOLERANCE
from ssm.specs.measurements.position_loss import PositionLoss

CONTEXT, LENGTH = 16, 64
EDGES = np.array([8, 16, 24, 32, 48, 64])
Draw = Callable[[np.random.Generator, int], np.ndarray]  # -> (windows,) nats


def rare(share: float, nats: float, others: float = 0.0) -> Draw:
    """`nats` in a share of the windows, `others` in the rest."""
    return lambda random, n: np.where(random.random(n) < share, nats, others) + random.normal(0, 0.02, n)


def alike(mean: float, spread: float = 0.2) -> Draw:
    """Normally distributed over all windows."""
    return lambda random, n: random.normal(mean, spread, n)


@dataclass(frozen=True)
class Windows:
    """Replaces `sampling.FixedWindowsContext`: windows with known losses."""

    full: np.ndarray  # (windows, bins) nats
    restarted: np.ndarray
    first: int = 0
    title: str = ""

    def past(self, first: int) -> Windows:
        return replace(self, first=first)


def table(values: np.ndarray) -> pl.DataFrame:
    windows, bins = values.shape
    columns = {
        "sequence": np.repeat(np.arange(windows), bins),
        "position_from": np.tile(EDGES[:-1], windows),
        "position_to": np.tile(EDGES[1:], windows),
        "loss": values.flatten(),
    }
    return pl.DataFrame(columns, schema=PositionLoss.table.columns)


def diagnosed(draw: Draw, windows: int, random: np.random.Generator) -> str:
    """The outcome after reading a text of so many windows until the verdict is decided."""
    restarted = random.normal(2.5, 0.3, (windows, len(EDGES) - 1))
    excess = random.normal(0, 0.02, restarted.shape)
    excess[:, 3:] += draw(random, windows)[:, None]  # from 32 tokens on
    spec = DiagnosisSpec(context=CONTEXT, length=LENGTH, sequences=max(windows, 4))
    looks = sampling.rounds(windows)
    sampler = sampling._Sampler(Windows(restarted + excess, restarted), spec, windows, False)  # type: ignore[arg-type]
    full, alone, count, _ = sampler._losses(looks)
    failure = failure_position(full, alone, TOLERANCE)
    return outcome_of(ratios(full, alone, CONTEXT, len(looks)), TOLERANCE, count, failure)


@pytest.fixture(autouse=True)
def given(monkeypatch: pytest.MonkeyPatch) -> None:
    def read(which: str) -> Callable[[Any, Windows], pl.DataFrame]:
        return lambda spec, reader: table(getattr(reader, which)[reader.first : reader.first + spec.sequences])

    monkeypatch.setattr(sampling, "position_loss", read("full"))
    monkeypatch.setattr(sampling, "restart_loss", read("restarted"))


def shares(draw: Draw, windows: int, trials: int) -> dict[str, float]:
    """The share of the diagnoses with each outcome."""
    random = np.random.default_rng(windows)
    counts = Counter(diagnosed(draw, windows, random) for _ in range(trials))
    return {outcome: counts[outcome] / trials for outcome in (BREAKS, HOLDS, NOT_DECIDED)}


RARELY = rare(0.1, 4.0)  # a true ratio of 1.49


@pytest.mark.parametrize(("windows", "wrong"), [(4, 0.66), pytest.param(16, 0.19, marks=pytest.mark.exhaustive)])
def test_few_windows_would_miss_a_rare_failure(windows: int, wrong: float, monkeypatch: pytest.MonkeyPatch) -> None:
    assert shares(RARELY, windows, 20)[HOLDS] == 0
    monkeypatch.setattr("ssm.diagnosis.outcome.ENOUGH", 1)
    assert shares(RARELY, windows, 60)[HOLDS] == pytest.approx(wrong, abs=0.12)  # 0.9 ** windows: none of them fails


# name -> draw, windows of the text, and the smallest and largest share of each outcome
CASES = {
    "a rare failure, 64": (RARELY, 64, {HOLDS: (0, 0.05), BREAKS: (0.3, 1)}),
    "a rare failure, 256": (RARELY, 256, {HOLDS: (0, 0), BREAKS: (0.9, 1)}),
    "breaks by half, 16": (alike(0.4, 0.3), 16, {HOLDS: (0, 0), BREAKS: (0.75, 1)}),
    "breaks by half, 64": (alike(0.4, 0.3), 64, {HOLDS: (0, 0), BREAKS: (0.95, 1)}),
    "breaks, barely, 64": (alike(log(1.11)), 64, {HOLDS: (0, 0.05)}),
    "breaks, barely, 256": (alike(log(1.11)), 256, {HOLDS: (0, 0.05)}),
    "holds, 64": (alike(0.0), 64, {BREAKS: (0, 0), HOLDS: (0.8, 1)}),
    "holds, barely, 16": (alike(log(1.09)), 16, {BREAKS: (0, 0.05)}),
    "holds, barely, 64": (alike(log(1.09)), 64, {BREAKS: (0, 0.05)}),
    "holds, barely, 256": (alike(log(1.09)), 256, {BREAKS: (0, 0.05)}),
    "a rare gain, 64": (rare(0.1, -1.5, 0.2), 64, {BREAKS: (0, 0.05)}),  # a true ratio of 1.03
    # The page warns about these cases: what windows cannot show.
    "a rare gain, 8": (rare(0.1, -1.5, 0.2), 8, {BREAKS: (0.3, 0.5)}),
    "a rarer failure, 64": (rare(0.03, 8.0), 64, {HOLDS: (0.05, 0.25)}),  # a true ratio of 1.27, 0.97^64 = 0.14
}


SLOW = (
    *("a rare failure, 256", "breaks by half, 64", "breaks, barely, 256", "holds, barely, 16", "holds, barely, 256"),
    *("a rare gain, 8", "a rarer failure, 64"),
)


@pytest.mark.parametrize(
    "case", [pytest.param(case, marks=pytest.mark.exhaustive) if case in SLOW else case for case in CASES]
)
def test_outcomes(case: str) -> None:
    draw, windows, expected = CASES[case]
    found = shares(draw, windows, 40 if windows <= ENOUGH else 20)
    for outcome, (least, most) in expected.items():
        assert least <= found[outcome] <= most, found
