"""The verdict of a diagnosis in words: its outcome as one sentence, and as a paragraph that explains it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from math import isfinite, isnan

from ssm.claims.words import number
from ssm.diagnosis.outcome import (
    BREAKS,
    HOLDS,
    NOT_DECIDED,
    at_chance,
    decides_more,
    fails_between,
    lost_inside,
    outcome_of,
)
from ssm.diagnosis.result import Drift, EffectiveLength, Facts, Interval, Readings, Recall, Solved, Verdict
from ssm.specs.diagnosis import ENOUGH
from ssm.specs.tasks.needle import ALTERNATIVES

RESTART = "A restart is the same model, which reads only the last T/2 to T tokens before each token (T: the context)."
CHANCE = 1 / (1 + ALTERNATIVES)  # accuracy of guessing in the needle test
STATE = "state statistics"  # the entry of `Facts.missing` if there is no drift


def verdict_of(readings: Readings, facts: Facts) -> Verdict:
    """The outcome and its paragraph. The first sentence is `sentence_of`."""
    sentence = sentence_of(readings, facts)
    if at_chance(readings, facts):
        return Verdict(NOT_DECIDED, f"{sentence} Check the tokenizer, and whether the model knows this language.")
    if readings.not_finite_from is not None:
        precision = "" if facts.precision == "float32" else " and the precision"
        check = f"Check the weights{precision}." if lost_inside(readings, facts) else ""
        return Verdict(BREAKS, _joined(sentence, check, _state(readings, facts)))
    outcome = outcome_of(readings.ratios, facts.tolerance, facts.sequences, readings.failure)
    length = readings.effective_length
    return Verdict(
        outcome,
        _joined(
            sentence,
            _recovery(readings, facts) if outcome == BREAKS else "",
            RESTART,
            _windows(outcome, readings, facts),
            document_words(facts),
            definition_words(outcome, readings),
            bits_words(readings, facts),
            length_words(length) if length else "",
            _state(readings, facts),
            _keys(readings, facts),
            _needles(readings, facts),
            _ruler(readings, facts),
            _advice(outcome, facts),
        ),
    )


def sentence_of(readings: Readings, facts: Facts) -> str:
    """The verdict in one sentence: the outcome, the position, and the ratio that decides, with its interval."""
    if at_chance(readings, facts):
        return (
            "Not decided: the model may predict no better than chance inside its context, where its perplexity is "
            f"{number(readings.in_context.value)} with a vocabulary of {facts.vocab_size:,} tokens."
        )
    if readings.not_finite_from is not None:
        return _not_a_number(readings, facts)
    outcome = outcome_of(readings.ratios, facts.tolerance, facts.sequences, readings.failure)
    return {BREAKS: _breaks, HOLDS: _holds, NOT_DECIDED: _not_decided}[outcome](readings, facts)


def generalization_words(readings: Readings) -> str:
    """The result of lg Definition 3.2. "No significant rise" does not prove that there is no rise."""
    return "no significant rise" if readings.generalizes else "a failure to length-generalize"


def definition_words(outcome: str, readings: Readings) -> str:
    """The result of lg Definition 3.2, and the reason if it disagrees with the verdict."""
    if outcome == BREAKS and readings.generalizes:
        return (
            "lg Definition 3.2 does not show this failure. It compares late tokens with other, earlier tokens, and "
            "the differences between them hide the rise. The verdict compares the same tokens, read twice."
        )
    if outcome == HOLDS and not readings.generalizes:
        return (
            "lg Definition 3.2 still finds a failure to length-generalize. It allows no rise at all, and it compares "
            "late tokens with other, earlier tokens. On the same tokens, read twice, the rise is within the tolerance."
        )
    return f"lg Definition 3.2 finds {generalization_words(readings)}."


def document_words(facts: Facts) -> str:
    """A warning if the windows are longer than the documents of the text."""
    if facts.document is None or facts.document >= facts.length:
        return ""
    return f"Half of the text is in documents of at most {facts.document:,} tokens. Older history is other documents."


def bits_words(readings: Readings, facts: Facts) -> str:
    """The bits per byte of text."""
    inside, far = readings.in_context_bits, readings.far_bits
    if inside is None or far is None or isnan(inside.value):
        return ""
    beyond = "no number" if isnan(far.value) else number(far.value)
    inside_words = f"{number(inside.value)} bits inside the context"
    return f"A byte of text costs {inside_words} and {beyond} near {facts.length:,} tokens."


def length_words(length: EffectiveLength) -> str:
    """How far back text lowers the loss."""
    little = ""
    if length.at_most is not None:
        harms = any(gain.high < 1 for n, gain in length.gains.items() if n >= length.at_most)
        more = "lowers its perplexity by less than 1%" + (", or raises it" if harms else "")
        little = f"From {length.at_most:,} tokens on, reading twice as many {more}."
    if length.at_least is None:
        return little or "It is not decided how far back text lowers its loss."
    further = little or "It is not decided how much further back it does."
    return f"Text more than {length.at_least:,} tokens back still lowers its loss. {further}"


def extension_words(readings: Readings) -> str:
    """The result of ls Definition 2.1."""
    kind = readings.length_class
    return "not decided" if kind == NOT_DECIDED else f"{'no' if kind == 'none' else kind} length extension"


def about(position: float) -> str:
    """A position with two significant digits.

    >>> about(3127.4), about(88.2), about(130_500)
    ('3,100', '88', '130,000')
    """
    return f"{float(f'{position:.1e}'):,.0f}"


def worst_position(ratios: Mapping[int, Interval], tolerance: float, length: int) -> int:
    """The position that the sentence names: the end if the model breaks there, else where the ratio is surest."""
    return length if ratios[length].low > tolerance else max(ratios, key=lambda end: ratios[end].low)


def times(ratio: Interval, tolerance: float | None = None) -> str:
    """A ratio as part of a sentence.

    >>> times(Interval(1.0, 0.998, 1.01))
    '1.00 times (95% interval 0.998 to 1.01)'
    """
    if not isfinite(ratio.value):
        return "an unknown number of times"
    return f"{digits(ratio.value)} times (95% interval {ends(ratio, tolerance)})"


def digits(value: float) -> str:
    """Three significant digits, with trailing zeros, as many as the ends of the interval show.

    >>> digits(1.0), digits(2.5), digits(12.34), digits(0.9979), digits(12345.6)
    ('1.00', '2.50', '12.3', '0.998', '12,346')
    """
    if abs(value) >= 1e6:
        return f"{value:.3g}"
    return number(value) if abs(value) >= 99.95 or isnan(value) else f"{value:#.3g}"


def ends(interval: Interval, bound: float | None = None) -> str:
    """The ends of an interval as part of a sentence. They have the digits that tell them from `bound`.

    >>> ends(Interval(1.0, 0.998, 1.01)), ends(Interval(1.5, 1.25, float("inf")))
    ('0.998 to 1.01', '1.25 to unknown')
    >>> ends(Interval(1.09, 1.08, 1.103)), ends(Interval(1.09, 1.08, 1.103), bound=1.1)
    ('1.08 to 1.10', '1.08 to 1.103')
    """
    low, high = (_apart(end, bound) if isfinite(end) else "unknown" for end in (interval.low, interval.high))
    return f"{low} to {high}"


def _apart(value: float, bound: float | None) -> str:
    """The digits of a value, with more of them if it would look equal to `bound` and is not."""
    shown = digits(value)
    if bound is None or value == bound or shown != digits(bound):
        return shown
    precise = (f"{value:#.{count}g}" for count in range(4, 18))
    return next(text for text in precise if float(text) != bound)


def failure_words(failure: Interval, facts: Facts) -> str:
    """The failure position with its interval, as part of a sentence."""
    context = f"{failure.value / facts.context:.1f} times its context"
    low = about(failure.low) if isfinite(failure.low) else "unknown"
    high = about(failure.high) if isfinite(failure.high) else f"beyond {facts.length:,}"
    return f"from about {about(failure.value)} tokens on ({context}; 95% interval {low} to {high})"


def _breaks(readings: Readings, facts: Facts) -> str:
    start = "The model breaks"
    if readings.failure is not None:
        start += f" {failure_words(readings.failure, facts)}"
    where = worst_position(readings.ratios, facts.tolerance, facts.length)
    ratio = times(readings.ratios[where], facts.tolerance)
    return f"{start}: at {where:,} tokens its perplexity is {ratio} that of a restart."


def _recovery(readings: Readings, facts: Facts) -> str:
    """The ratio at the end, if the sentence names a position before it."""
    if worst_position(readings.ratios, facts.tolerance, facts.length) == facts.length:
        return ""
    ratio = readings.ratios[facts.length]
    return f"At {facts.length:,} tokens it is {times(ratio, facts.tolerance)} that of a restart."


def _holds(readings: Readings, facts: Facts) -> str:
    tolerance = number(facts.tolerance)
    return f"The model holds up to {_length(facts)}: {_within(readings, facts)}, within the tolerance of {tolerance}."


def _within(readings: Readings, facts: Facts) -> str:
    highest = max(readings.ratios.values(), key=lambda ratio: ratio.high)
    return f"its perplexity is at most {times(highest, facts.tolerance)} that of a restart"


def _not_decided(readings: Readings, facts: Facts) -> str:
    end, ratio = max(readings.ratios.items(), key=lambda item: item[1].high)
    start, tolerance = f"Not decided up to {_length(facts)}", number(facts.tolerance)
    if ratio.high > facts.tolerance:
        at_end = f"at {end:,} tokens its perplexity is {times(ratio, facts.tolerance)} that of a restart"
        return f"{start}: {at_end}, and the tolerance is {tolerance}."
    if readings.failure is not None and fails_between(readings, facts):
        return (
            f"{start}: {failure_words(readings.failure, facts)} its perplexity exceeds {tolerance} times that of a "
            "restart for a while, but not at the lengths that decide."
        )
    return f"{start}: {_within(readings, facts)}, but it takes {ENOUGH} windows to say that it holds."


def _windows(outcome: str, readings: Readings, facts: Facts) -> str:
    """How many windows were read, and what may decide an open verdict, or a warning about few windows."""
    read = f"{facts.sequences:,} windows of the text were read."
    if outcome == NOT_DECIDED and not fails_between(readings, facts):
        kind, count = decides_more(readings, facts)
        limit = " and a larger --sequences" if count > facts.limit else ""
        more = {
            "text": f"The text has {facts.windows:,} windows: more text{limit} may decide it.",
            "budget": "The time was over: a larger --budget may decide it.",
            "sequences": "The limit of windows was reached: a larger --sequences may decide it.",
        }[kind]
        return f"{read} {more}"
    few = outcome == BREAKS and facts.sequences < ENOUGH
    return f"{read} So few windows may miss what is rare in the text." if few else read


def _not_a_number(readings: Readings, facts: Facts) -> str:
    where = f"its loss is not a number from position {readings.not_finite_from:,} on"
    assert readings.not_finite_from is not None
    if lost_inside(readings, facts):
        return f"The model breaks: {where}, inside its context of {facts.context:,} tokens."
    failure = readings.failure
    if failure is not None and failure.value < readings.not_finite_from:
        return f"The model breaks {failure_words(failure, facts)}: {where}."
    return f"The model breaks: {where}."


def _state(readings: Readings, facts: Facts) -> str:
    if readings.drift is None:
        reason = facts.why_missing().get(STATE)
        return f"Its state was not measured: {reason}." if reason else ""
    measured, drifting = readings.drift.measured, readings.drift.drifting
    drifts = ""
    if drifting:
        growth = "the standard deviation of a state more than doubles beyond the context"
        drifts = f"{drifting:,} of {measured:,} heads {'drifts' if drifting == 1 else 'drift'}: {growth}."
    elif measured:
        drifts = f"None of {measured:,} heads drifts."
    return _joined(drifts, unmeasured_words(readings.drift))


def unmeasured_words(drift: Drift) -> str:
    """How many heads have no growth, and why.

    >>> unmeasured_words(Drift(heads=8, drifting=0, top=(), unmeasured=2))
    'The growth of 2 heads was not measured: at T, the standard deviation of their state is zero or not a number.'
    """
    if drift.unmeasured == 0:
        return ""
    heads, their = ("head", "its") if drift.unmeasured == 1 else ("heads", "their")
    why = f"at T, the standard deviation of {their} state is zero or not a number"
    return f"The growth of {drift.unmeasured:,} {heads} was not measured: {why}."


def _keys(readings: Readings, facts: Facts) -> str:
    """The shares of passkeys that it finds."""
    inside, beyond = _inside_and_beyond(readings.passkey, facts)
    if inside is None or beyond is None:
        return ""
    if inside == 0 and beyond == 0:
        return "It finds no passkey, inside its context or beyond. This says nothing about length."
    return f"It finds {inside:.0%} of the passkeys inside its context and {beyond:.0%} beyond."


def _needles(readings: Readings, facts: Facts) -> str:
    """The shares of needles for which it prefers the answer in the text."""
    inside, beyond = _inside_and_beyond(readings.needle, facts)
    if inside is None or beyond is None:
        return ""
    return (
        "The text was given false statements, and the model was asked about them. It prefers the answer of the text in "
        f"{inside:.0%} of the cases inside its context and in {beyond:.0%} beyond. A guess does so in {CHANCE:.0%}."
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
    """The accuracy at lengths within the context, and beyond it."""
    return (
        found_of(cell for cell in cells if cell.length <= facts.context),
        found_of(cell for cell in cells if cell.length > facts.context),
    )


def found_of(cells: Iterable[Recall | Solved]) -> float | None:
    """The accuracy over all trials of these cells; None without a cell."""
    known = list(cells)
    trials = sum(cell.trials for cell in known)
    return sum(cell.accuracy.value * cell.trials for cell in known) / trials if trials else None


def _advice(outcome: str, facts: Facts) -> str:
    if outcome == HOLDS:
        return "There is nothing to repair."
    if outcome == BREAKS:
        if facts.can_extend:
            return "State Passing for 100 steps may repair it (ssm extend)."
        if facts.can_be_scaled:
            return "It cannot be trained further here; a scaled A may repair it (ssm extend --policy scale_a)."
        return "ssm extend cannot extend this model."
    return ""


def _length(facts: Facts) -> str:
    return f"{facts.length:,} tokens ({number(facts.length / facts.context)} times its context)"


def _joined(*sentences: str) -> str:
    return " ".join(sentence for sentence in sentences if sentence)
