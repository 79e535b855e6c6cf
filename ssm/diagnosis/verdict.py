"""From numbers to a verdict: breaks, holds or not decided, and a paragraph that a stranger understands."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from math import isfinite, isnan, log10

from ssm.claims.words import number, span
from ssm.diagnosis.result import EffectiveLength, Facts, Interval, Readings, Recall, Solved, Verdict
from ssm.specs.diagnosis import ENOUGH
from ssm.specs.tasks.needle import ALTERNATIVES

BREAKS, HOLDS, NOT_DECIDED = "breaks", "holds", "not decided"
OUTCOMES = (BREAKS, HOLDS, NOT_DECIDED)
RESTARTED = "that of the same model restarted within its context"
CHANCE = 1 / (1 + ALTERNATIVES)  # of a needle
STATE = "state statistics"  # what is missing where there is no drift


def outcome_of(ratios: Mapping[int, Interval], tolerance: float, windows: int, failure: Interval | None = None) -> str:
    """What the paired ratios decide.

    A model breaks where a whole interval lies above the tolerance, or where its loss is not a number; it holds where
    every interval of ENOUGH windows lies within, unless it surely fails somewhere between their positions.

    Args:
        windows: that the intervals are of.
        failure: from which position on the ratio exceeds the tolerance; None: nowhere.
    """
    if any(isnan(ratio.value) or ratio.low > tolerance for ratio in ratios.values()):
        return BREAKS
    between = failure is not None and isfinite(failure.high)
    within = all(ratio.high <= tolerance for ratio in ratios.values())
    return HOLDS if within and windows >= ENOUGH and not between else NOT_DECIDED


def verdict_of(readings: Readings, facts: Facts) -> Verdict:
    """The outcome and its paragraph.

    Of a model that predicts no better than chance inside its context nothing is decided, whatever its ratios.
    """
    if readings.in_context.value >= facts.vocab_size:
        return Verdict(NOT_DECIDED, _chance(readings, facts))
    outcome = outcome_of(readings.ratios, facts.tolerance, facts.sequences, readings.failure)
    if readings.not_finite_from is not None:
        return Verdict(BREAKS, _joined(_not_a_number(readings, facts), _state(readings, facts)))
    words = {BREAKS: _breaks, HOLDS: _holds, NOT_DECIDED: _not_decided}[outcome]
    found = words(readings, facts), definition_words(outcome, readings), bits_words(readings, facts)
    length = readings.effective_length
    inside = length_words(length) if length else "", _state(readings, facts)
    asked = _keys(readings, facts), _needles(readings, facts), _ruler(readings, facts)
    return Verdict(outcome, _joined(*found, *inside, *asked, _advice(outcome, facts)))


def generalization_words(readings: Readings) -> str:
    """What lg Definition 3.2 says of the loss curve: that no rise is significant is not that there is none."""
    return "no significant rise" if readings.generalizes else "a failure to length-generalize"


def definition_words(outcome: str, readings: Readings) -> str:
    """What lg Definition 3.2 says beside the verdict, and why, where it says another thing."""
    if outcome == BREAKS and readings.generalizes:
        return (
            "lg Definition 3.2 does not show the failure: it compares late tokens with other, earlier ones, whose "
            "differences hide a rise that the same tokens, read twice, show."
        )
    if outcome == HOLDS and not readings.generalizes:
        return (
            "lg Definition 3.2 finds a failure to length-generalize all the same: it allows no rise at all, and "
            "compares late tokens with other, earlier ones; on the same tokens, read twice, the rise is within the "
            "tolerance."
        )
    return f"By lg Definition 3.2: {generalization_words(readings)}."


def bits_words(readings: Readings, facts: Facts) -> str:
    """What a byte of text costs."""
    inside, far = readings.in_context_bits, readings.far_bits
    if inside is None or far is None or isnan(inside.value):
        return ""
    beyond = "not a number" if isnan(far.value) else number(far.value)
    return f"Bits per byte: {number(inside.value)} inside its context, {beyond} up to {facts.length:,} tokens."


def length_words(found: EffectiveLength) -> str:
    """How far back text lowers the loss."""
    little = ""
    if found.at_most is not None:
        harms = any(gain.high < 1 for n, gain in found.gains.items() if n >= found.at_most)
        more = "lower its perplexity by less than 1%" + (", or raise it" if harms else "")
        little = f"with {found.at_most:,} tokens read or more, twice as many {more}"
    if found.at_least is None:
        return f"{little.capitalize()}." if little else "How far back text lowers its loss is not decided."
    further = little or "how much further is not decided"
    return f"Text more than {found.at_least:,} tokens back still lowers its loss; {further}."


def extension_words(readings: Readings) -> str:
    """What ls Definition 2.1 says of the loss curve."""
    kind = readings.length_class
    return "not decided" if kind == NOT_DECIDED else f"{'no' if kind == 'none' else kind} length extension"


def about(position: float) -> str:
    """A position to two digits.

    >>> about(3127.4), about(88.2), about(130_500)
    ('3,100', '88', '130,000')
    """
    return f"{round(position, 1 - int(log10(max(position, 1)))):,.0f}"


def worst_position(ratios: Mapping[int, Interval], tolerance: float, length: int) -> int:
    """Whose ratio is told first: that of the end if the model breaks there, or else where it is surest to break."""
    return length if ratios[length].low > tolerance else max(ratios, key=lambda end: ratios[end].low)


def times(ratio: Interval) -> str:
    """A ratio as a part of a sentence.

    >>> times(Interval(2.134, 1.911, 2.36))
    '2.13 times (1.91 to 2.36)'
    """
    return f"{number(ratio.value)} times ({_ends(ratio)})"


def failure_words(failure: Interval, facts: Facts) -> str:
    """Where a model begins to fail, with the interval."""
    context = f"{failure.value / facts.context:.1f} times its context"
    low = about(failure.low) if isfinite(failure.low) else "unknown"
    high = about(failure.high) if isfinite(failure.high) else f"beyond {facts.length:,}"
    return f"about {about(failure.value)} tokens ({context}; 95% interval {low} to {high})"


def _breaks(readings: Readings, facts: Facts) -> str:
    ratios = readings.ratios
    where = worst_position(ratios, facts.tolerance, facts.length)
    start = f"Breaks from {failure_words(readings.failure, facts)}" if readings.failure else "Breaks"
    text = f"{start}: at {where:,} tokens its perplexity is {times(ratios[where])} {RESTARTED}"
    if where != facts.length:
        text += f", at {facts.length:,} tokens {times(ratios[facts.length])}"
    few = "; so few may miss what is rare in it" if facts.sequences < ENOUGH else ""
    return f"{text}, in {facts.sequences:,} windows of the text{few}."


def _holds(readings: Readings, facts: Facts) -> str:
    return f"Holds up to {_length(facts)}: {_within(readings, facts)}, in {facts.sequences:,} windows of the text."


def _within(readings: Readings, facts: Facts) -> str:
    highest = max(readings.ratios.values(), key=lambda ratio: ratio.high)
    *ends, last = (f"{end:,}" for end in readings.ratios)
    where = f"{', '.join(ends)} and {last}" if ends else last
    return (
        f"at {where} tokens its perplexity is at most {times(highest)} {RESTARTED}, "
        f"within the tolerance of {number(facts.tolerance)}"
    )


def _not_decided(readings: Readings, facts: Facts) -> str:
    end, ratio = max(readings.ratios.items(), key=lambda item: item[1].high)
    more = {
        "text": "the text holds no more, and more text may decide it",
        "budget": "the budget ended there, and more time may decide it",
        "sequences": "no more were asked for, and more (--sequences) may decide it",
    }.get(facts.stopped_by, "more text and more time may decide it")
    read = f"{facts.sequences:,} windows of the text were read: {more}."
    start = f"Not decided up to {_length(facts)}"
    if ratio.high > facts.tolerance:
        found = f"at {end:,} tokens its perplexity is {times(ratio)} {RESTARTED}"
        return f"{start}: {found}, and the tolerance is {number(facts.tolerance)}. {read}"
    failure = readings.failure
    if failure is not None and isfinite(failure.high):
        return (
            f"{start}: from {failure_words(failure, facts)} its perplexity exceeds {number(facts.tolerance)} times "
            f"{RESTARTED} for a while, though not at the positions that decide, in {facts.sequences:,} windows of the "
            "text."
        )
    return f"{start}: {_within(readings, facts)}, but {ENOUGH} windows are needed to say that it holds. {read}"


def _not_a_number(readings: Readings, facts: Facts) -> str:
    where = f"Its loss is not a number from position {readings.not_finite_from:,} on"
    assert readings.not_finite_from is not None
    if readings.not_finite_from < facts.context:
        return (
            f"{where}, inside its context of {facts.context:,} tokens: are the weights whole, and the precision enough?"
        )
    failure = readings.failure
    if failure is not None and failure.value < readings.not_finite_from:
        return f"Breaks from {failure_words(failure, facts)}. {where}."
    return f"Breaks: its loss is a number up to position {readings.not_finite_from:,} and not beyond."


def _chance(readings: Readings, facts: Facts) -> str:
    return (
        "Not decided: it predicts no better than chance inside its context, where its perplexity is "
        f"{number(readings.in_context.value)} with a vocabulary of {facts.vocab_size:,} tokens. Is this its tokenizer, "
        "and a language that it knows?"
    )


def _state(readings: Readings, facts: Facts) -> str:
    if readings.drift is None:
        reason = facts.why_missing().get(STATE)
        return f"Its state was not measured: {reason}." if reason else ""
    heads, drifting = readings.drift.heads, readings.drift.drifting
    return f"{'None' if drifting == 0 else f'{drifting:,}'} of {heads:,} heads {'drifts' if drifting < 2 else 'drift'}."


def _keys(readings: Readings, facts: Facts) -> str:
    """How much of what it can recall inside its context it recalls beyond."""
    inside, beyond = _inside_and_beyond(readings.passkey, facts)
    if inside is None or beyond is None:
        return ""
    if inside == 0 and beyond == 0:
        return "It finds no passkey, inside its context or beyond: that says nothing about length."
    return f"It finds {inside:.0%} of the passkeys inside its context and {beyond:.0%} beyond."


def _needles(readings: Readings, facts: Facts) -> str:
    """How often it goes by what the text says."""
    inside, beyond = _inside_and_beyond(readings.needle, facts)
    if inside is None or beyond is None:
        return ""
    return (
        f"Asked about a false statement in the text, it prefers what was said there in {inside:.0%} of the cases "
        f"inside its context and {beyond:.0%} beyond, where a guess does in {CHANCE:.0%}."
    )


def _ruler(readings: Readings, facts: Facts) -> str:
    inside, beyond = _inside_and_beyond(readings.ruler, facts)
    if not inside and not beyond:
        return ""
    if beyond is None:
        return f"It solves {inside:.0%} of RULER's prompts inside its context."
    if inside is None:
        return f"It solves {beyond:.0%} of RULER's prompts beyond its context."
    return f"It solves {inside:.0%} of RULER's prompts inside its context and {beyond:.0%} beyond."


def _inside_and_beyond(cells: Sequence[Recall | Solved], facts: Facts) -> tuple[float | None, float | None]:
    """Which part is found at lengths within the context, and at those beyond."""
    return (
        found_of(cell for cell in cells if cell.length <= facts.context),
        found_of(cell for cell in cells if cell.length > facts.context),
    )


def found_of(cells: Iterable[Recall | Solved]) -> float | None:
    """Which part is found in these cells together; None without a cell."""
    known = list(cells)
    trials = sum(cell.trials for cell in known)
    return sum(cell.accuracy.value * cell.trials for cell in known) / trials if trials else None


def _advice(outcome: str, facts: Facts) -> str:
    if outcome == HOLDS:
        return "There is nothing to repair."
    if outcome == BREAKS:
        if facts.can_extend:
            return "State Passing for 100 steps is worth trying."
        return "It is of a kind that cannot be extended here."
    return ""


def _length(facts: Facts) -> str:
    return f"{facts.length:,} tokens ({number(facts.length / facts.context)} times its context)"


def _ends(interval: Interval) -> str:
    return span(interval.low, interval.high) if isfinite(interval.high) else f"from {number(interval.low)} up"


def _joined(*sentences: str) -> str:
    return " ".join(sentence for sentence in sentences if sentence)
