"""What an extension has come to, in a word and a reason, from diagnoses before and after. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import exp, isfinite

from ssm.diagnosis.result import Diagnosis
from ssm.diagnosis.verdict import BREAKS, HOLDS, NOT_DECIDED, times
from ssm.extension.choice import Candidate, Measure, choose
from ssm.extension.losses import Factors

_WORDS = {"far_perplexity": "far perplexity", "paired_ratio": "paired ratio"}
ENDLESS = 700.0  # nats: a loss beyond it is the same
_NOW = {
    BREAKS: "it still breaks",
    HOLDS: "it holds now; whether it broke was not decided",
    NOT_DECIDED: "whether it holds now is not decided",
}
REPAIRED, IMPROVED, NOTHING = "repaired", "improved", "nothing was gained"


@dataclass(frozen=True)
class Outcome:
    """One of REPAIRED, IMPROVED and NOTHING, and why."""

    word: str
    reason: str

    @property
    def gained(self) -> bool:
        """Whether there is a model to take home."""
        return self.word != NOTHING

    def __str__(self) -> str:
        return f"{self.word[:1].upper()}{self.word[1:]}: {self.reason}"


def outcome_before_training(before: Diagnosis) -> Outcome | None:
    """Of a model that needs no repair, or whose text is not what it reads; None: it has to be trained."""
    if before.readings.in_context.value >= before.facts.vocab_size:
        return Outcome(NOTHING, "it predicts no better than chance inside its context, and was not trained")
    return Outcome(NOTHING, "it holds as it is, and was not trained") if before.verdict.outcome == HOLDS else None


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
    original, *others = candidates
    if choose(candidates, measure, tolerance) is not original:
        return None
    best = min(others, key=lambda candidate: _or_endless(getattr(candidate, measure)))
    gain = exp(min(getattr(best, measure) - getattr(original, measure), ENDLESS))
    rise = exp(min(best.in_context - original.in_context, ENDLESS)) - 1
    said = f"the best of the trained weights, those of step {best.step}, have {gain:.3g} times its {_WORDS[measure]}"
    if not gain < 1:
        return Outcome(NOTHING, said)
    return Outcome(
        NOTHING,
        f"{said}, but {rise:+.1%} perplexity in context, where {100 * tolerance:g}% are allowed; a larger "
        "--in-context-tolerance trains nothing again, a smaller --lr or more text may help",
    )


def outcome_of(before: str, after: str, change: Factors, tolerance: float) -> Outcome:
    """Of trained weights.

    Args:
        before, after: the verdicts' outcomes.
        change: from before to after.
        tolerance: by which the perplexity in context may rise.
    """
    in_context, far, ratio = change.in_context, change.far_perplexity, change.paired_ratio
    percent = " to ".join(f"{end - 1:+.1%}" for end in (in_context.low, in_context.high))
    percent = f"{in_context.value - 1:+.1%} ({percent})"
    if in_context.low > 1 + tolerance:
        return Outcome(NOTHING, f"its perplexity in context rose by {percent}, more than {100 * tolerance:g}%")
    if far.low > 1:  # a ratio also falls when what it divides by rises
        return Outcome(
            NOTHING, f"its far perplexity is {times(far)} what it was, although its paired ratio is {times(ratio)}"
        )
    how = f"its paired ratio is {times(ratio)} what it was, its perplexity in context {percent}"
    if before == BREAKS and after == HOLDS:
        return Outcome(REPAIRED, f"it broke and it holds now; {how}")
    if ratio.high < 1:
        return Outcome(IMPROVED, f"{how}; {_NOW[after]}")
    return Outcome(NOTHING, f"{how}: no sure difference")


def _or_endless(loss: float) -> float:
    return loss if isfinite(loss) else float("inf")
