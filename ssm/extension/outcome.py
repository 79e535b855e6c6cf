"""The outcome of an extension and its reason, from the diagnoses before and after."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import exp, isfinite, isnan

from ssm.diagnosis.intervals import OVERFLOW
from ssm.diagnosis.outcome import BREAKS, HOLDS, NOT_DECIDED, at_chance
from ssm.diagnosis.result import Diagnosis, Interval
from ssm.diagnosis.verdict import times
from ssm.extension.choice import Candidate, Measure, best_of_trained, choose
from ssm.extension.losses import Factors

WORDS = {"far_perplexity": "far perplexity", "paired_ratio": "paired ratio"}
_NOW = {
    BREAKS: "it still breaks",
    HOLDS: "it holds now; whether it broke before was not decided",
    NOT_DECIDED: "whether it holds now is not decided",
}
REPAIRED, IMPROVED, NOTHING = "repaired", "improved", "nothing was gained"  # or NOT_DECIDED


@dataclass(frozen=True)
class Advice:
    """Explanations and advice for an extension that is not proven better."""

    unchanged: str  # nothing was done to a model that holds, or that is at chance
    changed: str  # this was seen only after the model was changed, on other windows
    learned: str  # the far perplexity fell, but not the paired ratio
    far_out: str  # what may decide whether the far perplexity or the paired ratio fell
    in_context: str  # what may help if the perplexity in context is not within the tolerance


OF_TRAINING = Advice(
    unchanged="and was not trained",
    changed="which was not decided on other windows when it was trained",
    learned="it has learned the text, but it does not work better beyond its context",
    far_out="more held-out text or more --steps may decide it",
    in_context="a larger --in-context-tolerance may help and trains nothing again",
)
OF_REPAIRING = Advice(
    unchanged="and was not repaired",
    changed="which was not decided on other windows when it was repaired",
    learned="it predicts better everywhere, but not especially beyond its context",
    far_out="more held-out text may decide it",
    in_context="a larger --in-context-tolerance may help",
)


@dataclass(frozen=True)
class Outcome:
    """The outcome and its reason."""

    word: str  # REPAIRED, IMPROVED, NOT_DECIDED or NOTHING
    reason: str

    @property
    def gained(self) -> bool:
        """Whether the model is proven better, and so is written as model/."""
        return self.word in (REPAIRED, IMPROVED)

    def __str__(self) -> str:
        return f"{self.word[:1].upper()}{self.word[1:]}: {self.reason}"


def outcome_before(before: Diagnosis, changed: bool = False, advice: Advice = OF_TRAINING) -> Outcome | None:
    """The outcome of a model that holds, or that is no better than chance on this text; None: it must be changed.

    Args:
        changed: whether it has been trained or repaired already, after a diagnosis of other windows.
        advice: for the kind of the extension.
    """
    so = advice.changed if changed else advice.unchanged
    if at_chance(before.readings, before.facts):
        return Outcome(NOTHING, f"it may predict no better than chance inside its context, {so}")
    return Outcome(NOTHING, f"it holds as it is, {so}") if before.verdict.outcome == HOLDS else None


def outcome_of_training(
    diverged: str | None, candidates: Sequence[Candidate], measure: Measure, tolerance: float
) -> Outcome | None:
    """The outcome of a training without better weights; None: the chosen weights must be diagnosed.

    Args:
        diverged: why training ended early, if it did. Then there are no candidates.
        candidates, measure, tolerance: as in `choose`.
    """
    if diverged is not None:
        return Outcome(NOTHING, f"training {diverged}")
    original, best = candidates[0], best_of_trained(candidates, measure)
    if best is None or choose(candidates, measure, tolerance) is not original:
        return None
    was, now, word = getattr(original, measure), getattr(best, measure), WORDS[measure]
    if not isfinite(now):
        return Outcome(NOTHING, f"the {word} of all trained weights is not a number")
    weights = f"the best trained weights (step {best.step})"
    rise = exp(min(best.in_context - original.in_context, OVERFLOW)) - 1
    if not isfinite(rise):
        return Outcome(NOTHING, f"the loss in context of the original, or of {weights}, is not a number")
    if isfinite(was):
        reason = f"{weights} have {exp(min(now - was, OVERFLOW)):.3g} times the {word} of the original"
    else:
        reason = f"{weights} have a {word} that is a number, unlike the original"
    if now < was or not isfinite(was):
        reason += (
            f", but {rise:+.1%} perplexity in context ({100 * tolerance:g}% allowed); a larger --in-context-tolerance "
            "(which trains nothing again), a smaller --lr or more text may help"
        )
    return Outcome(NOTHING, reason)


def outcome_of(before: str, after: str, change: Factors, tolerance: float, advice: Advice = OF_TRAINING) -> Outcome:
    """The outcome of the chosen weights. A gain must be proven by intervals.

    Three conditions must be certain. The far perplexity is lower. The perplexity in context rose by at most
    `tolerance`. The paired ratio is lower, or the model holds and the original broke. If one condition certainly fails,
    nothing was gained. Otherwise the outcome is not decided.

    The intervals are valid for any number of windows, because they allow for a window that was not drawn
    (`ssm.diagnosis.intervals.cautious`). "Holds" needs more windows (`ssm.diagnosis.outcome`).

    Args:
        before, after: outcomes of the verdicts.
        change: from before to after.
        tolerance: the allowed rise of the perplexity in context, for example 0.02.
        advice: for weights that are not proven better.
    """
    in_context, far, ratio = change.in_context, change.far_perplexity, change.paired_ratio
    repaired, limit, percent = before == BREAKS and after == HOLDS, 1 + tolerance, f"{100 * tolerance:g}%"
    # All losses of a model that holds are numbers. So an unknown change means that the original's loss was not one.
    mended = repaired and isnan(far.value)
    lost = isnan(in_context.value) or (isnan(far.value) and not repaired)
    if lost:
        return Outcome(NOTHING, "its loss, or the original's, is not a number in context or far out")
    if in_context.low > limit:
        return Outcome(NOTHING, f"its perplexity in context rose by {_percent(in_context)}, more than {percent}")
    if far.low >= 1:  # a ratio also falls if the perplexity after a restart rises
        reason = f"its far perplexity is {times(far)} what it was, although its paired ratio is {times(ratio)}"
        return Outcome(NOTHING, reason)
    changed = "a number now" if mended else f"{times(far)} what it was, its paired ratio {times(ratio)}"
    how = f"its far perplexity is {changed}, its perplexity in context {_percent(in_context)}"
    if not repaired and ratio.low >= 1:
        return Outcome(NOTHING, f"{how}: {advice.learned}")
    conditions = [
        (f"whether its far perplexity fell; {advice.far_out}", not (far.high < 1 or mended)),
        (f"whether its paired ratio fell; {advice.far_out}", not (ratio.high < 1 or repaired)),
        (f"whether its perplexity in context rose by at most {percent}; {advice.in_context}", in_context.high > limit),
    ]
    for what, is_open in conditions:
        if is_open:
            return Outcome(NOT_DECIDED, f"{how}; it is not decided {what}")
    if repaired:
        return Outcome(REPAIRED, f"it broke before, and it holds now; {how}")
    return Outcome(IMPROVED, f"{how}; {_NOW[after]}")


def _percent(factor: Interval) -> str:
    """A factor as a rise in percent, with its interval.

    >>> _percent(Interval(1.004, 0.999, 1.009))
    '+0.4% (-0.1% to +0.9%)'
    """
    return f"{factor.value - 1:+.1%} ({factor.low - 1:+.1%} to {factor.high - 1:+.1%})"
