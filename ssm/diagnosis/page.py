"""The HTML page of a diagnosis, or of an extension with the diagnoses before and after it, as one file."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from dataclasses import dataclass
from math import isfinite

from ssm.base.counting import duration, first_of, size
from ssm.base.provenance import environment
from ssm.claims.statements import CONFIRMED, OPEN, REFUTED
from ssm.claims.words import number
from ssm.diagnosis.comparison import Change, compare
from ssm.diagnosis.definitions import definitions, why_they_differ
from ssm.diagnosis.outcome import (
    BREAKS,
    HOLDS,
    NOT_DECIDED,
    at_chance,
    outcome_of,
    text_to_extend,
    worth_extending,
)
from ssm.diagnosis.plots import plots
from ssm.diagnosis.readings import SHARING, ratio_spans
from ssm.diagnosis.result import Diagnosis, EffectiveLength, Extension, Interval, Recall, Solved
from ssm.diagnosis.verdict import about, digits, ends, found_of, length_words, unmeasured_words
from ssm.report.build import style, template
from ssm.report.gather import SYMBOLS
from ssm.report.image import svg_image
from ssm.specs.diagnosis import ENOUGH, WHY_TOLERANCE

PAGE = "page.html.j2"
TONES = {BREAKS: REFUTED, HOLDS: CONFIRMED, NOT_DECIDED: OPEN}  # colors and symbols as in the report
STOPPED = {
    "decided": "the verdict was decided",
    "budget": "the budget was spent",
    "text": "the text was used up",
    "sequences": "the limit of windows was reached",
}
NONE = "–"


@dataclass(frozen=True)
class Word:
    """A verdict that the page shows with a symbol and a color."""

    text: str
    tone: str

    @property
    def symbol(self) -> str:
        return SYMBOLS[self.tone]

    @property
    def style(self) -> str:
        return self.tone.replace(" ", "-")


@dataclass(frozen=True)
class RatioRow:
    """The paired ratio at one position, and the outcome of this ratio only."""

    targets: str
    times: str
    ratio: str
    word: Word


def build_page(
    diagnosis: Diagnosis,
    before: Diagnosis | None = None,
    extra: Extension | None = None,
    extend: Sequence[str] = (),
) -> str:
    """The page as HTML. It links to diagnosis.json and tables/ in its folder, or to the links of `extra`.

    Args:
        before: the diagnosis of the same model before its extension. Plots and tables then show both.
        extra: the result of the extension.
        extend: the words of the command that may repair this model, shown if it is worth trying; empty: none.
    """
    facts = diagnosis.facts
    control = extra.control if extra is not None else None
    drawn = {plot.name: (svg_image(plot.svg, plot.name), plot.label) for plot in plots(diagnosis, before, control)}
    return template("ssm.diagnosis", PAGE).render(
        diagnosis=diagnosis,
        facts=facts,
        readings=diagnosis.readings,
        before=before,
        extra=extra,
        word=_headline(diagnosis, extra),
        verdicts=[(name, found, _word(found)) for name, found in _arms(diagnosis, before, control).items()],
        plots=drawn,
        ratios=_ratio_rows(diagnosis),
        changes=_changes(diagnosis, before, control) if before is not None else [],
        definitions=definitions(diagnosis),
        why_they_differ=why_they_differ(diagnosis),
        unmeasured_words=unmeasured_words(drift) if (drift := diagnosis.readings.drift) else "",
        length_words=length_words(length) if (length := diagnosis.readings.effective_length) else "",
        next_command=_option_groups(extend) if worth_extending(diagnosis) else [],
        text_to_extend=text_to_extend(facts),
        missing=facts.why_missing(),
        cost=_cost(diagnosis),
        method=_method(diagnosis),
        links=_links(diagnosis, extra),
        breaks=diagnosis.verdict.outcome == BREAKS,
        enough=ENOUGH,
        sharing=SHARING,
        why_tolerance=WHY_TOLERANCE,
        interval=interval,
        percent=percent,
        compared=_compared(diagnosis, before, control),
        dash=NONE,
        number=number,
        first_files=first_files,
        style=style(),
    )


def interval(estimate: Interval | None) -> str:
    """A number with its interval.

    >>> interval(Interval(2.134, 1.911, 2.36))
    '2.13 (1.91 to 2.36)'
    """
    if estimate is None or not isfinite(estimate.value):
        return NONE if estimate is None else "not a number"
    return digits(estimate.value) + (f" ({ends(estimate)})" if isfinite(estimate.high - estimate.low) else "")


def percent(estimate: Interval) -> str:
    """A share with its interval.

    >>> percent(Interval(0.213, 0.191, 0.236))
    '21% (19% to 24%)'
    """
    if not isfinite(estimate.high - estimate.low):
        return interval(estimate)
    return f"{estimate.value:.0%} ({estimate.low:.0%} to {estimate.high:.0%})"


def factor(estimate: Interval) -> str:
    """A change, with enough digits to see a small one.

    >>> factor(Interval(1.0012, 0.9991, 1.0034))
    '1.001 (0.999 to 1.003)'
    """
    if not isfinite(estimate.high - estimate.low) or estimate.high >= 10:
        return interval(estimate)
    return f"{estimate.value:.3f} ({estimate.low:.3f} to {estimate.high:.3f})"


def first_files(text: str, most: int = 3) -> str:
    """The first names of a long list of files, and the number of the others.

    >>> first_files("a.txt, b.txt, c.txt, d.txt, e.txt")
    'a.txt, b.txt, c.txt and 2 more'
    """
    return first_of(text.split(", "), most)


def _option_groups(words: Sequence[str]) -> list[str]:
    """The quoted words of a command, in parts that a browser does not split: options with their first value.

    >>> _option_groups(["ssm", "extend", "m", "--text", "a b", "c", "--control", "-o", "new"])
    ['ssm', 'extend', 'm', "--text 'a b'", 'c', '--control', '-o new']
    """
    groups = list[str]()
    for before, word in zip(["", *words], words, strict=False):
        quoted = shlex.quote(word)
        if before.startswith("-") and not word.startswith("-"):
            groups[-1] += f" {quoted}"
        else:
            groups.append(quoted)
    return groups


def _word(diagnosis: Diagnosis) -> Word:
    outcome = diagnosis.verdict.outcome
    return Word(outcome, TONES[outcome])


def _headline(diagnosis: Diagnosis, extra: Extension | None) -> Word:
    if extra is None:
        return _word(diagnosis)
    return Word(extra.outcome, CONFIRMED if extra.gained else OPEN)


def _arms(diagnosis: Diagnosis, before: Diagnosis | None, control: Diagnosis | None) -> dict[str, Diagnosis]:
    if before is None:
        return {"": diagnosis}
    others = {"Control": control} if control is not None else {}
    return {"Before": before, "After": diagnosis, **others}


def _ratio_rows(diagnosis: Diagnosis) -> list[RatioRow]:
    facts, spans = diagnosis.facts, ratio_spans(diagnosis.tables.restart_loss, diagnosis.facts.context)
    rows = []
    for stop, ratio in diagnosis.readings.ratios.items():
        within = outcome_of({stop: ratio}, facts.tolerance, facts.sequences)
        outcome = NOT_DECIDED if at_chance(diagnosis.readings, facts) else within
        rows.append(
            RatioRow(
                f"{spans[stop]:,} to {stop:,}",
                number(stop / facts.context),
                interval(ratio),
                Word(outcome, TONES[outcome]),
            )
        )
    return rows


def _changes(after: Diagnosis, before: Diagnosis, control: Diagnosis | None) -> list[tuple[str, list[str]]]:
    """Rows of the table of before and after: a name, and one cell for each column."""
    sequences = _compared(after, before, control)
    change = compare(before, after, sequences)
    other = compare(before, control, sequences) if control is not None else None
    context, length = before.facts.context, before.facts.length

    def row(name: str, of: Change, others: Change | None) -> tuple[str, list[str]]:
        cells = [interval(of.before), interval(of.after), factor(of.factor)]
        return name, cells + ([factor(others.factor)] if others else [])

    rows = [
        row(
            f"Perplexity inside the context, {context // 2:,} to {context:,}",
            change.in_context,
            other.in_context if other else None,
        ),
        row(f"Perplexity in the last quarter of {length:,}", change.far, other.far if other else None),
        *(
            row(f"Paired ratio in the last quarter of {stop:,}", found, other.ratios[stop] if other else None)
            for stop, found in change.ratios.items()
        ),
    ]
    plain = zip(_plain_numbers(before), _plain_numbers(after), strict=True)
    empty = [NONE] * (1 if control is None else 2)
    return rows + [(name, [old, new, *empty]) for (name, old), (_, new) in plain if {old, new} != {NONE}]


def _plain_numbers(diagnosis: Diagnosis) -> list[tuple[str, str]]:
    """Numbers that the table shows without their change: name and value."""
    readings, context, length = diagnosis.readings, diagnosis.facts.context, diagnosis.facts.length
    drift = readings.drift
    numbers = [
        ("Fails from", _failure(diagnosis)),
        ("Bits per byte inside the context", interval(readings.in_context_bits)),
        (f"Bits per byte in the last quarter of {length:,}", interval(readings.far_bits)),
        ("Effective length", _far_back(readings.effective_length)),
        ("Heads that drift", f"{drift.drifting:,} of {drift.measured:,}" if drift and drift.measured else NONE),
        (f"Effective Remembrance, {context:,} tokens kept", interval(readings.remembrance)),
    ]
    for what, cells in (
        ("Passkeys found", readings.passkey),
        ("Needles found", readings.needle),
        ("RULER's prompts solved", readings.ruler),
    ):
        numbers.append((f"{what} inside the context", _found(cells, 0, context)))
        numbers.append((f"{what} beyond it", _found(cells, context, length)))
    return numbers


def _compared(*arms: Diagnosis | None) -> int:
    """The number of windows that all have read."""
    return min(arm.facts.sequences for arm in arms if arm is not None)


def _failure(diagnosis: Diagnosis) -> str:
    failure = diagnosis.readings.failure
    if failure is not None and diagnosis.verdict.outcome == BREAKS:
        return f"{about(failure.value)} tokens"
    return "nowhere" if diagnosis.verdict.outcome == HOLDS else NONE


def _far_back(length: EffectiveLength | None) -> str:
    if length is None:
        return NONE
    ends = [NONE if end is None else f"{end:,}" for end in (length.at_least, length.at_most)]
    return NONE if set(ends) == {NONE} else f"{ends[0]} to {ends[1]} tokens"


def _found(cells: tuple[Recall | Solved, ...], longer_than: int, up_to: int) -> str:
    share = found_of(cell for cell in cells if longer_than < cell.length <= up_to)
    return NONE if share is None else f"{share:.0%}"


def _cost(diagnosis: Diagnosis) -> list[tuple[str, str]]:
    facts = diagnosis.facts
    state, peak = facts.state_bytes, facts.peak_bytes
    return [
        ("Parameters", f"{facts.parameters:,}"),
        *([] if state is None else [(f"State after {facts.context:,} tokens", f"{size(state)} per sequence")]),
        ("Reading speed", f"{number(facts.tokens_per_second)} tokens/s on {facts.device}"),
        *([] if peak is None else [("Largest memory in use", size(peak))]),
        ("This diagnosis", f"{duration(facts.seconds)}, {facts.tokens_read:,} tokens through the model"),
    ]


def _method(diagnosis: Diagnosis) -> list[tuple[str, str]]:
    facts, software = diagnosis.facts, environment()
    versions = ", ".join(f"{name} {version}" for name, version in software["packages"].items())
    return [
        ("Model", f"{facts.name} ({facts.kind})"),
        ("Fingerprint", f"{facts.fingerprint} (SHA-256 of config and weights)"),
        ("Text", f"{first_files(facts.text, 10)} (SHA-256 {facts.text_sha256[:16]}…)"),
        ("Tokenizer", facts.tokenizer),
        ("Context T", f"{facts.context:,} tokens"),
        ("Read up to", f"{facts.length:,} tokens ({number(facts.length / facts.context)} T)"),
        ("Sequences", f"{facts.sequences:,}, until {STOPPED.get(facts.stopped_by, facts.stopped_by)}"),
        ("Tolerance", f"{number(facts.tolerance)} (ratio of perplexities)"),
        ("Seed", str(facts.seed)),
        ("Device", f"{facts.device}, {facts.precision}"),
        ("Page made by", f"ssm {software['code']['ssm']} ({software['code']['commit']}); {versions}"),
        *(("Not measured", text) for text in facts.missing),
    ]


def _links(diagnosis: Diagnosis, extra: Extension | None) -> list[tuple[str, str]]:
    if extra is not None:
        return list(extra.links)
    tables = [(f"{name}.parquet", f"tables/{name}.parquet") for name in diagnosis.tables.present()]
    return [("diagnosis.json", "diagnosis.json"), *tables]
