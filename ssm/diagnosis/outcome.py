"""The outcome of a diagnosis: breaks, holds or not decided; and what follows: whether to extend, or to read more."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import ceil, isfinite, isnan

from ssm.diagnosis.result import Diagnosis, Facts, Interval, Readings
from ssm.specs.diagnosis import ENOUGH, FOURFOLD, RESERVED
from ssm.specs.extension import FEWEST

BREAKS, HOLDS, NOT_DECIDED = "breaks", "holds", "not decided"


def outcome_of(ratios: Mapping[int, Interval], tolerance: float, windows: int, failure: Interval | None = None) -> str:
    """The outcome that follows from the paired ratios.

    A model breaks if a whole interval is above the tolerance, or if a loss is not a number. It holds if all intervals
    of ENOUGH windows are within the tolerance, unless it certainly fails between their positions.

    Args:
        ratios: by position, tokens.
        windows: the number of windows behind the intervals.
        failure: the position from which the ratio exceeds the tolerance; None: it never does.
    """
    if any(isnan(ratio.value) or ratio.low > tolerance for ratio in ratios.values()):
        return BREAKS
    holds = _all_within(ratios, tolerance) and windows >= ENOUGH and not _certain(failure)
    return HOLDS if holds else NOT_DECIDED


def at_chance(readings: Readings, facts: Facts) -> bool:
    """Whether the model may predict no better than chance inside its context. If so, its ratios mean nothing.

    The interval of few windows is wide. So it counts only if the perplexity itself is above half the vocabulary.
    """
    perplexity, chance = readings.in_context, facts.vocab_size
    return perplexity.value >= chance or (perplexity.value > chance / 2 and perplexity.high >= chance)


def lost_inside(readings: Readings, facts: Facts) -> bool:
    """Whether a loss inside the context is not a number. No extension repairs that."""
    return readings.not_finite_from is not None and readings.not_finite_from < facts.context


def fails_between(readings: Readings, facts: Facts) -> bool:
    """Whether the model certainly fails somewhere, but at none of the lengths that decide."""
    return _certain(readings.failure) and _all_within(readings.ratios, facts.tolerance)


def decides_more(readings: Readings, facts: Facts) -> tuple[str, int]:
    """What may decide an open verdict: minutes of "budget", or a number of windows of "sequences" or "text".

    Four times as many windows halve an interval. At least ENOUGH windows are needed to say that a model holds. More
    text is needed if it has fewer windows than that, or fewer than twice those that were read.
    """
    share = max(FOURFOLD, ENOUGH / facts.sequences)
    if facts.stopped_by == "budget":
        seconds = facts.reading_seconds / (1 - RESERVED)  # the rest of a budget is kept for other measurements
        return "budget", ceil(share * seconds / 60)
    count = ceil(share * facts.sequences)
    least = max(ENOUGH if _all_within(readings.ratios, facts.tolerance) else 0, 2 * facts.sequences)
    if facts.stopped_by == "text" or facts.windows < least:
        return "text", count
    return "sequences", min(count, facts.windows)


def worth_extending(found: Diagnosis) -> bool:
    """Whether `ssm extend` may repair the model."""
    repairable = found.facts.can_extend or found.facts.can_be_scaled
    return found.verdict.outcome == BREAKS and repairable and not lost_inside(found.readings, found.facts)


def extend_words(facts: Facts, model: str, text: Sequence[str], others: Sequence[str] = ()) -> list[str]:
    """The words of the `ssm extend` command that may repair the model.

    Args:
        model: as the user gave it.
        text: files, folders or globs.
        others: further options, such as --tokenizer.
    """
    lengths = ["--context", str(facts.context), "--length", str(length_to_extend(facts))]
    policy = ["--policy", "scale_a"] if facts.can_be_scaled else []
    return ["ssm", "extend", model, "--text", *text, *lengths, *policy, *others, "-o", "extended"]


def length_to_extend(facts: Facts) -> int:
    """The length for `ssm extend`: that of the diagnosis, halved until the text has enough windows; at least 2 T."""
    length, shortest = facts.length, 2 * facts.context
    while length > shortest and _text_lacks_windows(facts, length):
        length = max(length // 2, shortest)
    return length


def text_to_extend(facts: Facts) -> int | None:
    """The tokens that `ssm extend` takes at the length of `length_to_extend`. None: the text has as many."""
    length = length_to_extend(facts)
    return FEWEST * (length + 1) if _text_lacks_windows(facts, length) else None


def _text_lacks_windows(facts: Facts, length: int) -> bool:
    """Whether the text has too few windows of `length` for `ssm extend`."""
    return facts.windows * (facts.length + 1) < FEWEST * (length + 1)


def _certain(failure: Interval | None) -> bool:
    """Whether the position of a failure has an upper end, so that there is a failure."""
    return failure is not None and isfinite(failure.high)


def _all_within(ratios: Mapping[int, Interval], tolerance: float) -> bool:
    """Whether the intervals of all ratios are within the tolerance."""
    return all(ratio.high <= tolerance for ratio in ratios.values())
