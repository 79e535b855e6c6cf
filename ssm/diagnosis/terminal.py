"""The terminal output of a diagnosis or an extension: the verdict, a table, and what to type next.

All lines have at most WIDTH columns.
"""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import isfinite
from pathlib import Path
from textwrap import wrap
from typing import Any
from unicodedata import east_asian_width

from ssm.base.text_table import aligned
from ssm.diagnosis.comparison import first_windows
from ssm.diagnosis.outcome import (
    BREAKS,
    HOLDS,
    at_chance,
    decides_more,
    fails_between,
    lost_inside,
    text_to_extend,
    worth_extending,
)
from ssm.diagnosis.readings import bits_per_byte, perplexity, ratio_spans, ratios
from ssm.diagnosis.result import OUT_OF_MEMORY, SPENT, Diagnosis, Facts, Interval, Tables
from ssm.diagnosis.verdict import digits, document_words, ends, sentence_of
from ssm.specs.diagnosis import ENOUGH

WIDTH = 80
NONE = "-"
SPANS = "Each row is measured on the last quarter of its length, the first row on the second half of the context."
LEFT_OUT = {  # why a measurement is missing -> the same as part of a sentence, and what helps
    SPENT: (SPENT, "A larger --budget helps."),
    OUT_OF_MEMORY: ("the memory was too small", "A smaller --length may help."),
}
RATIO = (
    "Ratio: perplexity with the full history, divided by that of a restart: the same model, which reads only the last "
    "T/2 to T tokens (T: the context)."
)


@dataclass(frozen=True)
class Row:
    """The measurements at one length."""

    length: int  # tokens
    perplexity: Interval
    ratio: Interval | None  # None: inside the context there are no restarts
    bits: Interval | None  # per byte; None: not measured


def diagnosis_lines(diagnosis: Diagnosis, page: Path, extend: Sequence[str]) -> list[str]:
    """The output of `ssm diagnose`.

    Args:
        page: the file with the explanation.
        extend: the words of the command that may repair this model, shown if it is worth trying.
    """
    facts = diagnosis.facts
    windows = f"{facts.sequences:,} windows of the text were read; the ratios' intervals hold together with 95%."
    return [
        *paragraph(sentence_of(diagnosis.readings, facts)),
        "",
        *_table_of(diagnosis),
        "",
        *paragraph(f"{RATIO} {SPANS} {windows} {document_words(facts)}"),
        "",
        *_left_out(facts),
        *_next(diagnosis, extend),
        *_where("Page", page),
    ]


def extension_lines(
    result: Mapping[str, Any],
    before: Diagnosis,
    after: Diagnosis | None,
    places: Mapping[str, Path],
    commands: Mapping[str, str],
) -> list[str]:
    """The output of `ssm extend`.

    Args:
        result: the content of result.json.
        after: None: nothing was trained.
        places: written files and folders, by their description.
        commands: shell commands that can be typed next, by their purpose.
    """
    outcome = str(result["outcome"])
    return [
        *paragraph(f"{outcome[:1].upper()}{outcome[1:]}: {result['reason']}."),
        "",
        *(_before_and_after(before, after) if after is not None else _table_of(before)),
        "",
        *(line for what, path in places.items() for line in _where(what, path)),
        *(line for what, text in commands.items() for line in (f"{what}:", *command(shlex.split(text)))),
    ]


def rows_of(tables: Tables, ratios: Mapping[int, Interval], context: int) -> list[Row]:
    """One row for the context, and one for each length with a paired ratio."""
    spans = {context: context // 2} | ratio_spans(tables.restart_loss, context)
    spelled, losses = tables.spelled_bytes, tables.position_loss
    return [
        Row(
            length,
            perplexity(losses, start, length),
            ratios.get(length),
            None if spelled is None else bits_per_byte(losses, spelled, start, length),
        )
        for length, start in spans.items()
    ]


def table(rows: Sequence[Row]) -> list[str]:
    """A table with aligned columns. It has a column of bits per byte only if a row has a value."""
    heads = ["length", "perplexity", "ratio (95% interval)", "bits per byte"]
    cells = [[f"{row.length:,}", _number(row.perplexity), _interval(row.ratio), _number(row.bits)] for row in rows]
    if all(row.bits is None for row in rows):
        heads, cells = heads[:-1], [line[:-1] for line in cells]
    return aligned([heads, *cells], left=(2,))


def command(words: Sequence[str]) -> list[str]:
    """A command of a POSIX shell on lines of WIDTH columns, ready to be pasted.

    A line that continues ends with a backslash. A word that is too long for a line is split in the same way: its
    continuation starts the next line without indentation.
    """
    lines, line = [], " "
    for i, word in enumerate(words, start=1):
        quoted, goes_on = shlex.quote(word), " \\" if i < len(words) else ""
        if line.strip() and _columns(f"{line} {quoted}{goes_on}") > WIDTH:
            lines.append(f"{line} \\")
            line = " " * 3
        if _columns(f"{line} {quoted}{goes_on}") > WIDTH:
            first, *others, quoted = _parts(word, WIDTH - _columns(line) - 3)
            lines += [f"{line} {first}\\", *(f"{part}\\" for part in others)]
            line = quoted
        else:
            line = f"{line} {quoted}"
    return [*lines, line]


def paragraph(text: str) -> list[str]:
    """Text on lines of WIDTH columns."""
    return wrap(text, WIDTH, break_on_hyphens=False)


def _left_out(facts: Facts) -> list[str]:
    """What the budget or the memory did not allow to measure."""
    lines = []
    for reason, (because, remedy) in LEFT_OUT.items():
        names = [what for what, why in facts.why_missing().items() if why == reason]
        if names:
            lines += [*paragraph(f"Not measured, because {because}: {', '.join(names)}. {remedy}"), ""]
    return lines


def _next(diagnosis: Diagnosis, extend: Sequence[str]) -> list[str]:
    """What the user can do next."""
    facts, readings, outcome = diagnosis.facts, diagnosis.readings, diagnosis.verdict.outcome
    if at_chance(readings, facts):
        return paragraph("Check the tokenizer (--tokenizer), and whether the model knows the language of the text.")
    if lost_inside(readings, facts):
        precision = "" if facts.precision == "float32" else ", and the precision (--precision float32)"
        return paragraph(f"Check the weights{precision}.")
    if worth_extending(diagnosis):
        needed = text_to_extend(facts)
        more = "" if needed is None else f"give more text, about {needed:,} tokens, and "
        return [f"To repair it, {more}type:", *command(extend)]
    if outcome == BREAKS:
        return paragraph("`ssm extend` cannot extend this model.")
    again = "run the same command with another -o and"
    if outcome == HOLDS:
        further = min(2 * facts.length, facts.longest or 2 * facts.length)
        if further == facts.length:
            return paragraph("There is nothing to repair. The model cannot read further: its positions end or change.")
        lacks = facts.windows * (facts.length + 1) < ENOUGH * (further + 1)
        more = f" and {_more_text(ENOUGH, further)}" if lacks else ""
        return paragraph(f"There is nothing to repair. To read further, {again} --length {further}{more}.")
    if fails_between(readings, facts):
        return paragraph("The page shows the ratio at every position.")
    kind, count = decides_more(readings, facts)
    if kind != "text":
        return paragraph(f"To decide it, {again} --{kind} {count}.")
    option = f"--sequences {count} and " if count > facts.limit else ""
    return paragraph(f"To decide it, {again} {option}{_more_text(count, facts.length)}.")


def _more_text(windows: int, length: int) -> str:
    """Advice about how much text has so many windows."""
    return f"more text: {windows:,} windows take about {windows * (length + 1):,} tokens"


def _table_of(diagnosis: Diagnosis) -> list[str]:
    return table(rows_of(diagnosis.tables, diagnosis.readings.ratios, diagnosis.facts.context))


def _before_and_after(before: Diagnosis, after: Diagnosis) -> list[str]:
    """A table of the windows that both have read."""
    context, windows = before.facts.context, min(before.facts.sequences, after.facts.sequences)
    both = []
    for diagnosis in (before, after):
        tables = first_windows(diagnosis.tables, windows)
        tables = Tables(tables.position_loss, tables.restart_loss, tables.length_class)
        both.append(rows_of(tables, ratios(tables.position_loss, tables.restart_loss, context), context))
    cells = [
        [f"{old.length:,}", *map(_number, (old.perplexity, new.perplexity, old.ratio, new.ratio))]
        for old, new in zip(*both, strict=True)
    ]
    heads = ["length", "perplexity before", "after", "ratio before", "after"]
    note = f"{RATIO} {SPANS} Both have read the same {windows:,} windows of the text."
    return [*aligned([heads, *cells]), "", *paragraph(note)]


def _where(what: str, path: Path) -> list[str]:
    line = f"{what}: {shlex.quote(str(path))}"
    return [line] if _columns(line) <= WIDTH else [f"{what}:", *command([str(path)])]


def _number(estimate: Interval | None) -> str:
    if estimate is None:
        return NONE
    return digits(estimate.value) if isfinite(estimate.value) else "no number"


def _interval(estimate: Interval | None) -> str:
    if estimate is None or not isfinite(estimate.value):
        return _number(estimate)
    return f"{_number(estimate)} ({ends(estimate)})"


def _columns(text: str) -> int:
    """The width of a text in columns of a terminal."""
    return sum(2 if east_asian_width(letter) in "FW" else 1 for letter in text)


def _parts(word: str, room: int) -> list[str]:
    """A quoted word in parts: the first has at most `room` columns, and each other part fits on a line."""
    parts, rest = [], word
    while _columns(shlex.quote(rest)) > room:
        end = next(i for i in range(1, len(rest) + 1) if _columns(shlex.quote(rest[: i + 1])) > room)
        cut = max(rest.rfind(" ", end // 2, end), rest.rfind("/", end // 2, end)) + 1 or end
        parts.append(shlex.quote(rest[:cut]))
        rest, room = rest[cut:], WIDTH - 2  # for a space and a backslash
    return [*parts, shlex.quote(rest)]
