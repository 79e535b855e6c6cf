"""The outcomes of an extension at their borders, and the intervals behind them."""

from __future__ import annotations

from itertools import pairwise
from math import exp, inf, log, nan
from types import SimpleNamespace
from typing import Any

import numpy as np
import polars as pl
import pytest
from scipy import stats

from ssm.base.bins import bin_edges
from ssm.diagnosis.intervals import UNSEEN
from ssm.diagnosis.outcome import BREAKS, HOLDS, NOT_DECIDED
from ssm.diagnosis.result import Interval, Tables
from ssm.extension.choice import ORIGINAL, Candidate
from ssm.extension.losses import Factors, factors_between, losses_of
from ssm.extension.outcome import (
    IMPROVED,
    NOTHING,
    OF_REPAIRING,
    OF_TRAINING,
    REPAIRED,
    outcome_before,
    outcome_of,
    outcome_of_training,
)
from ssm.specs.measurements.position_loss import PositionLoss

BETTER, WORSE = Interval(0.5, 0.4, 0.6), Interval(1.5, 1.4, 1.6)
SAME, OPEN = Interval(1.0, 0.99, 1.01), Interval(0.9, 0.7, 1.1)
NO_NUMBER = Interval(nan, -inf, inf)


def change(
    paired_ratio: Interval = BETTER, in_context: Interval = SAME, far_perplexity: Interval = BETTER, sequences: int = 64
) -> Factors:
    return Factors(sequences, in_context=in_context, far_perplexity=far_perplexity, paired_ratio=paired_ratio)


@pytest.mark.parametrize(
    ("before", "after", "changed", "word"),
    [
        (BREAKS, HOLDS, change(), REPAIRED),
        (BREAKS, HOLDS, change(OPEN), REPAIRED),  # two intervals on both sides of the tolerance
        (BREAKS, BREAKS, change(), IMPROVED),
        (BREAKS, NOT_DECIDED, change(), IMPROVED),
        (NOT_DECIDED, HOLDS, change(), IMPROVED),
        (BREAKS, BREAKS, change(Interval(0.9, 0.8, 0.999)), IMPROVED),
        (BREAKS, BREAKS, change(Interval(0.9, 0.8, 1.0)), NOT_DECIDED),  # its interval reaches 1
        (BREAKS, NOT_DECIDED, change(OPEN), NOT_DECIDED),
        (NOT_DECIDED, HOLDS, change(OPEN), NOT_DECIDED),
        (BREAKS, BREAKS, change(WORSE), NOTHING),
        (BREAKS, BREAKS, change(NO_NUMBER, far_perplexity=NO_NUMBER), NOTHING),
        (BREAKS, HOLDS, change(NO_NUMBER, far_perplexity=NO_NUMBER), REPAIRED),  # the original's was no number
        (BREAKS, HOLDS, change(in_context=NO_NUMBER), NOTHING),
        (BREAKS, HOLDS, change(in_context=Interval(1.01, 1.0, 1.02)), REPAIRED),  # surely within 2%
        (BREAKS, HOLDS, change(in_context=Interval(1.01, 1.0, 1.021)), NOT_DECIDED),  # perhaps
        (BREAKS, HOLDS, change(in_context=Interval(1.1, 1.015, 1.19)), NOT_DECIDED),
        (BREAKS, HOLDS, change(in_context=Interval(1.03, 1.021, 1.04)), NOTHING),  # surely beyond
        (BREAKS, HOLDS, change(far_perplexity=WORSE), NOTHING),  # the ratio fell because what it divides by rose
        (BREAKS, BREAKS, change(far_perplexity=WORSE), NOTHING),
        (BREAKS, BREAKS, change(far_perplexity=SAME), NOT_DECIDED),  # so did it, perhaps
        (BREAKS, HOLDS, change(far_perplexity=SAME), NOT_DECIDED),
        (BREAKS, BREAKS, change(sequences=8), IMPROVED),  # its intervals say so, of however few windows
        (BREAKS, HOLDS, change(in_context=WORSE, sequences=8), NOTHING),
    ],
)
def test_outcomes(before: str, after: str, changed: Factors, word: str) -> None:
    found = outcome_of(before, after, changed, tolerance=0.02)
    assert found.word == word
    assert found.gained == (word in (REPAIRED, IMPROVED))
    assert "nan" not in found.reason


def test_the_reason_contains_the_numbers() -> None:
    found = outcome_of(BREAKS, HOLDS, change(in_context=Interval(1.004, 0.999, 1.009)), 0.02)
    assert str(found) == (
        "Repaired: it broke before, and it holds now; its far perplexity is 0.500 times (95% interval 0.400 to 0.600) "
        "what it was, its paired ratio 0.500 times (95% interval 0.400 to 0.600), its perplexity in context +0.4% "
        "(-0.1% to +0.9%)"
    )
    assert outcome_of(BREAKS, BREAKS, change(), 0.02).reason.endswith("; it still breaks")
    assert "more than 2%" in outcome_of(BREAKS, HOLDS, change(in_context=WORSE), 0.02).reason
    far = outcome_of(BREAKS, HOLDS, change(far_perplexity=WORSE), 0.02).reason
    said = "its far perplexity is 1.50 times (95% interval 1.40 to 1.60) what it was, although its paired ratio is 0.5"
    assert far.startswith(said)


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        (
            change(far_perplexity=SAME),
            "; it is not decided whether its far perplexity fell; more held-out text or more --steps may decide it",
        ),
        (
            change(OPEN),
            "; it is not decided whether its paired ratio fell; more held-out text or more --steps may decide it",
        ),
        (
            change(in_context=Interval(1.01, 1.0, 1.03)),
            "; it is not decided whether its perplexity in context rose by at most 2%; a larger --in-context-tolerance "
            "may help and trains nothing again",
        ),
    ],
)
def test_an_outcome_says_what_is_not_decided(changed: Factors, said: str) -> None:
    found = outcome_of(BREAKS, BREAKS, changed, 0.02)
    assert found.reason.endswith(said)
    assert str(found).startswith("Not decided: its far perplexity is ")


def test_a_repair_without_training_gets_no_advice_about_training() -> None:
    for changed in (
        change(far_perplexity=SAME),
        change(OPEN),
        change(WORSE),
        change(in_context=Interval(1.01, 1, 1.03)),
    ):
        trained, repaired = (outcome_of(BREAKS, BREAKS, changed, 0.02, by) for by in (OF_TRAINING, OF_REPAIRING))
        assert any(word in trained.reason for word in ("train", "--steps", "learned"))
        assert not any(word in repaired.reason for word in ("train", "--steps", "learned"))
        assert (trained.word, trained.reason[:40]) == (repaired.word, repaired.reason[:40])


def test_a_model_that_holds_needs_no_training() -> None:
    def before(outcome: str, in_context: float) -> Any:
        return SimpleNamespace(
            readings=SimpleNamespace(in_context=Interval(in_context, in_context, in_context)),
            verdict=SimpleNamespace(outcome=outcome),
            facts=SimpleNamespace(vocab_size=256),
        )

    found = outcome_before(before(HOLDS, 4.0))
    assert found is not None
    assert str(found) == "Nothing was gained: it holds as it is, and was not trained"
    asked = outcome_before(before(HOLDS, 4.0), changed=True)
    assert asked is not None
    assert asked.reason == "it holds as it is, which was not decided on other windows when it was trained"
    reasons = [outcome_before(before(HOLDS, 4.0), changed, OF_REPAIRING) for changed in (False, True)]
    assert [found.reason for found in reasons if found] == [
        "it holds as it is, and was not repaired",
        "it holds as it is, which was not decided on other windows when it was repaired",
    ]
    assert outcome_before(before(BREAKS, 255.0)) is None
    assert outcome_before(before(NOT_DECIDED, 4.0)) is None
    lost = outcome_before(before(NOT_DECIDED, 256.0))
    assert lost is not None
    assert "no better than chance" in lost.reason


def candidates(*others: tuple[float, float]) -> list[Candidate]:
    found = [Candidate(ORIGINAL, 0, None, 2.0, 3.0, 1.0)]
    return found + [Candidate(f"{i}", i, None, a, b, b) for i, (a, b) in enumerate(others, 1)]


def test_a_training_without_better_weights() -> None:
    diverged = outcome_of_training("diverged: loss is nan at step 3", [], "far_perplexity", 0.02)
    assert diverged is not None
    assert str(diverged) == "Nothing was gained: training diverged: loss is nan at step 3"
    assert outcome_of_training(None, candidates((2.0, 2.0)), "far_perplexity", 0.02) is None
    worse = outcome_of_training(None, candidates((2.0, 3.0 + log(2)), (2.0, 9.0)), "far_perplexity", 0.02)
    assert worse is not None
    assert worse.word == NOTHING
    assert worse.reason == "the best trained weights (step 1) have 2 times the far perplexity of the original"
    dear = outcome_of_training(None, candidates((9.0, 9.0), (2.0 + log(1.5), 3.0 - log(4))), "far_perplexity", 0.02)
    assert dear is not None
    assert dear.word == NOTHING
    assert dear.reason.startswith(
        "the best trained weights (step 2) have 0.25 times the far perplexity of the original, but +50.0% perplexity "
        "in context (2% allowed)"
    )


ADVICE = "; a larger --in-context-tolerance (which trains nothing again), a smaller --lr or more text may help"


@pytest.mark.parametrize(
    ("original", "trained", "reason"),
    [
        (
            (2.0, nan),
            (2.0 + log(1.5), 3.0),
            "the best trained weights (step 1) have a far perplexity that is a number, unlike the original, but "
            f"+50.0% perplexity in context (2% allowed){ADVICE}",
        ),
        ((2.0, 3.0), (2.0, nan), "the far perplexity of all trained weights is not a number"),
        ((2.0, nan), (2.0, nan), "the far perplexity of all trained weights is not a number"),
        (
            (nan, 3.0),
            (2.0, 2.0),
            "the loss in context of the original, or of the best trained weights (step 1), is not a number",
        ),
    ],
)
def test_a_training_without_better_weights_if_a_loss_is_not_a_number(
    original: tuple[float, float], trained: tuple[float, float], reason: str
) -> None:
    both = [Candidate(f"{i}", i, None, a, b, b) for i, (a, b) in enumerate((original, trained))]
    found = outcome_of_training(None, both, "far_perplexity", 0.02)
    assert found is not None
    assert (found.word, found.reason) == (NOTHING, reason)


EDGES = bin_edges(64)
BINS = len(EDGES) - 1


def table(values: np.ndarray, first: int = 0) -> pl.DataFrame:
    """(sequences, bins) losses as a table of the bins from position `first` on."""
    rows = [
        {"sequence": s, "position_from": a, "position_to": b, "loss": row[i]}
        for s, row in enumerate(values)
        for i, (a, b) in enumerate(pairwise(EDGES))
        if a >= first
    ]
    return pl.DataFrame(rows, schema=PositionLoss.table.columns)


def diagnosis(losses: np.ndarray, restarted: np.ndarray) -> Any:
    """The parts of a diagnosis that a comparison reads: T is 16, L is 64."""
    tables = Tables(table(losses), table(restarted, 8), pl.DataFrame())
    return SimpleNamespace(facts=SimpleNamespace(context=16, length=64, sequences=len(losses)), tables=tables)


def mean(values: np.ndarray, start: int, stop: int) -> np.ndarray:
    """(sequences,) means over the positions [start, stop)."""
    inside = (EDGES[:-1] >= start) & (EDGES[1:] <= stop)
    return np.average(values[:, inside], axis=1, weights=np.diff(EDGES)[inside])


def test_changes_are_paired_on_common_windows() -> None:
    random, common = np.random.default_rng(1), 5
    old, old_restarted = random.normal(3, 1, (8, BINS)), random.normal(2, 1, (8, BINS))
    new, new_restarted = old[:common] - 0.5 + random.normal(0, 0.1, (common, BINS)), old_restarted[:common] + 0.1
    found = factors_between(diagnosis(old, old_restarted), diagnosis(new, new_restarted))
    assert found.sequences == common
    old, old_restarted = old[:common], old_restarted[:common]

    def expected(differences: np.ndarray) -> tuple[float, float, float]:
        low, high = stats.t.interval(0.95, common - 1, differences.mean(), stats.sem(differences))
        return exp(differences.mean()), exp(low), exp(high)

    in_context = mean(new_restarted, 8, 64) - mean(old_restarted, 8, 64)
    far = mean(new, 48, 64) - mean(old, 48, 64)
    ratio = far - mean(new_restarted, 48, 64) + mean(old_restarted, 48, 64)

    def with_one_unseen(differences: np.ndarray) -> tuple[float, float, float]:
        away = UNSEEN * differences.std(ddof=1)
        ends = []
        for end, sign in ((0, -1), (1, 1)):
            more = np.append(differences, differences.mean() + sign * away)
            ends.append(exp(stats.t.interval(0.95, common, more.mean(), stats.sem(more))[end]))
        return exp(differences.mean()), *ends

    for interval, differences, ends in (
        (found.in_context, in_context, expected),
        (found.far_perplexity, far, with_one_unseen),
        (found.paired_ratio, ratio, with_one_unseen),
    ):
        assert (interval.value, interval.low, interval.high) == pytest.approx(ends(differences))
    assert found.in_context.value == pytest.approx(exp(0.1))


def test_factors_as_json() -> None:
    open_end = Factors(4, Interval(nan, -inf, inf), BETTER, WORSE).as_json()
    assert open_end["in_context"] == {"value": None, "low": None, "high": None}
    assert open_end["far_perplexity"] == {"value": 0.5, "low": 0.4, "high": 0.6}


def test_losses_for_the_choice_are_means_over_windows() -> None:
    random = np.random.default_rng(2)
    full, restarted = random.normal(3, 1, (4, BINS)), random.normal(2, 1, (4, BINS))
    found = losses_of(table(full), table(restarted, 8), context=16)
    assert found.in_context == pytest.approx(mean(restarted, 8, 64).mean())
    assert found.far_perplexity == pytest.approx(mean(full, 48, 64).mean())
    assert found.paired_ratio == pytest.approx((mean(full, 48, 64) - mean(restarted, 48, 64)).mean())


def test_a_nan_makes_the_losses_nan() -> None:
    full = np.full((4, BINS), 2.0)
    full[2, -1] = nan
    found = losses_of(table(full), table(np.full((4, BINS), 2.0), 8), context=16)
    assert (str(found.far_perplexity), str(found.paired_ratio), found.in_context) == ("nan", "nan", 2.0)
