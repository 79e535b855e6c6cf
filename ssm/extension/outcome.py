"""What an extension has come to, in a word and a reason, from diagnoses before and after. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import exp, isnan

from ssm.diagnosis.result import Diagnosis, Interval
from ssm.diagnosis.verdict import BREAKS, HOLDS, NOT_DECIDED, times
from ssm.extension.choice import Candidate, Measure, best_of_trained, choose
from ssm.extension.losses import Factors

WORDS = {"far_perplexity": "far perplexity", "paired_ratio": "paired ratio"}
ENDLESS = 700.0  # nats: a loss beyond it is the same
_NOW = {
    BREAKS: "it still breaks",
    HOLDS: "it holds now; whether it broke was not decided",
    NOT_DECIDED: "whether it holds now is not decided",
}
REPAIRED, IMPROVED, UNDECIDED, NOTHING = "repaired", "improved", "undecided", "nothing was gained"


@dataclass(frozen=True)
class Advice:
    """What is said of an extension that did not surely gain, by how it was made."""

    learned: str  # better far out, and its paired ratio is no lower
    far_out: str  # what may tell whether it is better there
    in_context: str  # and there


OF_TRAINING = Advice(
    learned="it has learned the text, and not to read on",
    far_out="more held-out text or more --steps may tell",
    in_context="a larger --in-context-tolerance trains nothing again",
)
OF_REPAIRING = Advice(
    learned="it predicts better all over, and reads on no better",
    far_out="more held-out text may tell",
    in_context="a larger --in-context-tolerance may be what it takes",
)


@dataclass(frozen=True)
class Outcome:
    """One of REPAIRED, IMPROVED, UNDECIDED and NOTHING, and why."""

    word: str
    reason: str

    @property
    def gained(self) -> bool:
        """Whether there is a model to take home: what is not surely better is not handed out."""
        return self.word in (REPAIRED, IMPROVED)

    def __str__(self) -> str:
        return f"{self.word[:1].upper()}{self.word[1:]}: {self.reason}"


def outcome_before_training(before: Diagnosis, trained: bool = False) -> Outcome | None:
    """Of a model that needs no repair, or whose text is not what it reads; None: it has to be trained.

    Args:
        trained: whether it has been, because a diagnosis of other windows asked for it.
    """
    so = "which other windows left open when it was trained" if trained else "and was not trained"
    if before.readings.in_context.value >= before.facts.vocab_size:
        return Outcome(NOTHING, f"it predicts no better than chance inside its context, {so}")
    return Outcome(NOTHING, f"it holds as it is, {so}") if before.verdict.outcome == HOLDS else None


def outcome_of_training(
    diverged: str | None, candidates: Sequence[Candidate], measure: Measure, tolerance: float
) -> Outcome | None:
    """Of a training that gave no better weights; None: it has to be seen what they are worth.

    Args:
        diverged: why training ended early; there are no candidates then.
        candidates, measure, tolerance: of the choice.
    """
    if diverged is not None:
        return Outcome(NOTHING, f"training {diverged}")
    original, best = candidates[0], best_of_trained(candidates, measure)
    if best is None or choose(candidates, measure, tolerance) is not original:
        return None
    gain = exp(min(getattr(best, measure) - getattr(original, measure), ENDLESS))
    rise = exp(min(best.in_context - original.in_context, ENDLESS)) - 1
    said = f"the best of the trained weights, those of step {best.step}, have {gain:.3g} times its {WORDS[measure]}"
    if not gain < 1:
        return Outcome(NOTHING, said)
    return Outcome(
        NOTHING,
        f"{said}, but {rise:+.1%} perplexity in context, where {100 * tolerance:g}% are allowed; a larger "
        "--in-context-tolerance trains nothing again, a smaller --lr or more text may help",
    )


def outcome_of(before: str, after: str, change: Factors, tolerance: float, advice: Advice = OF_TRAINING) -> Outcome:
    """Of other weights: what is said to be gained is proven.

    The intervals decide, whatever the number of windows: they allow for a window that was not drawn
    (`ssm.diagnosis.intervals.cautious`). That a model holds takes more windows, by a rule of its own
    (`ssm.diagnosis.verdict`).

    They must surely have a lower perplexity far out and one within `tolerance` in context; and hold where the original
    broke, or surely have a lower paired ratio. What surely misses one of these gained nothing; all else is undecided.

    Args:
        before, after: the verdicts' outcomes.
        change: from before to after.
        tolerance: by which the perplexity in context may rise.
        advice: to who is left with nothing, by how the weights were made.
    """
    in_context, far, ratio = change.in_context, change.far_perplexity, change.paired_ratio
    repaired, limit, percent = before == BREAKS and after == HOLDS, 1 + tolerance, f"{100 * tolerance:g}%"
    # Of a model that holds every loss is a number: a change far out that is none says that the original's was not.
    mended = repaired and isnan(far.value)
    lost = isnan(in_context.value) or (isnan(far.value) and not repaired)
    if lost:
        return Outcome(NOTHING, "its loss, or the original's, is not a number in context or far out")
    if in_context.low > limit:
        return Outcome(NOTHING, f"its perplexity in context rose by {_percent(in_context)}, more than {percent}")
    if far.low >= 1:  # a ratio also falls when what it divides by rises
        said = f"its far perplexity is {times(far)} what it was, although its paired ratio is {times(ratio)}"
        return Outcome(NOTHING, said)
    changed = "a number now" if mended else f"{times(far)} what it was, its paired ratio {times(ratio)}"
    how = f"its far perplexity is {changed}, its perplexity in context {_percent(in_context)}"
    if not repaired and ratio.low >= 1:
        return Outcome(NOTHING, f"{how}: {advice.learned}")
    costs = f"whether its perplexity in context rose by no more than {percent} is open, and {advice.in_context}"
    unknown = {
        f"whether its far perplexity fell is open, and {advice.far_out}": not (far.high < 1 or mended),
        f"whether its paired ratio fell is open, and {advice.far_out}": not (ratio.high < 1 or repaired),
        costs: in_context.high > limit,
    }
    if any(unknown.values()):
        return Outcome(UNDECIDED, f"{how}; {next(said for said, is_open in unknown.items() if is_open)}")
    if repaired:
        return Outcome(REPAIRED, f"it broke and it holds now; {how}")
    return Outcome(IMPROVED, f"{how}; {_NOW[after]}")


def _percent(factor: Interval) -> str:
    """A factor as a rise.

    >>> _percent(Interval(1.004, 0.999, 1.009))
    '+0.4% (-0.1% to +0.9%)'
    """
    return f"{factor.value - 1:+.1%} ({factor.low - 1:+.1%} to {factor.high - 1:+.1%})"
