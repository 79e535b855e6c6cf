"""Numbers, intervals and verdicts as text, for the terminal and the report."""

from __future__ import annotations

import math
import textwrap
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ssm.base.prose import plain

CONFIRMED, REFUTED, OPEN = "confirmed", "refuted", "not decided"
VERDICT_NAMES = (CONFIRMED, REFUTED, OPEN)
PAPER, DEFINITION, ADDED = "paper", "definition", "ours"  # kinds of statements
ELSEWHERE = "elsewhere"  # a statement on models that this scale does not have
SORTS = {PAPER: "statements of the papers", DEFINITION: "definitions", ADDED: "added checks"}
MISSES = 0.05  # share of 95% intervals that do not contain the true value
GAP = "  "
# Columns of printed verdicts. On a narrow terminal they are cut in the order of SHRINK, each down to the given number
# of characters. Reasons and the papers' words are cut first, our numbers later, and the verdict never.
HEADS = ("figure", "claim", "the paper", "here (95% interval)", "method of the interval", "expected", "verdict", "why")
TARGET, CLAIM, THEIRS, HERE, METHOD, EXPECTED, VERDICT, REASON = range(8)
SHRINK = (
    *((REASON, 24), (METHOD, 24), (THEIRS, 40), (CLAIM, 24), (THEIRS, 14), (METHOD, 0), (REASON, 0), (CLAIM, 12)),
    *((column, 4) for column in (THEIRS, CLAIM, EXPECTED, HERE, TARGET)),
)


def number(value: float | None) -> str:
    """A number with three significant digits. From 1,000 on: all digits, with commas. "none" if there is no number.

    >>> number(1.23456), number(12345.6), number(0.5), number(None)
    ('1.23', '12,346', '0.5', 'none')
    """
    if value is None or math.isnan(value):
        return "none"
    if 999.5 <= abs(value) < 1e15:
        return f"{value:,.0f}"
    return f"{value:.3g}"


def span(low: float | None, high: float | None) -> str:
    """An interval as text.

    >>> span(1.2, 1.94)
    '1.2 to 1.94'
    """
    return f"{number(low)} to {number(high)}"


def measured(row: Mapping[str, Any]) -> str:
    """The number of a verdict with its interval: "1.23 (1.1 to 1.4)", "1.02 (exact)", "no number"."""
    if row["estimate"] is None:
        return "no number"
    inside = "exact" if row["interval"] == "exact" else span(row["low"], row["high"])
    return f"{number(row['estimate'])} ({inside})"


def totals(verdicts: Iterable[str]) -> str:
    """The number of verdicts of each kind.

    >>> totals(["confirmed", "not decided", "confirmed"])
    '2 confirmed, 0 refuted, 1 not decided'
    """
    counts = Counter(verdicts)
    return ", ".join(f"{counts[name]} {name}" for name in VERDICT_NAMES)


@dataclass(frozen=True)
class Tally:
    """Counts of verdicts. Every number is counted once, even if several claims judge it."""

    claims: int
    counts: dict[str, Counter[str]]  # kind of statement -> verdict -> numbers, each counted once
    repeated: int  # verdicts on numbers that another verdict of their kind already judges
    unregistered: int  # verdicts that were registered too late or not at all: not counted
    elsewhere: int  # statements on models that this scale does not have: not counted
    intervals: int  # numbers with a 95% interval

    @property
    def wrong(self) -> float:
        """Expected number of intervals that miss the true value: an upper bound on the expected wrong verdicts."""
        return MISSES * self.intervals


def tally(rows: Iterable[Mapping[str, Any]]) -> Tally:
    """Count verdicts.

    A number that several claims judge counts once for each kind of statement. If their verdicts differ, the worst one
    counts: refuted before not decided before confirmed.
    """
    rows = list(rows)
    here = [row for row in rows if row["sort"] != ELSEWHERE]
    counted = [row for row in here if row["registered"] is not False]
    counts, numbers = {}, 0
    for sort in SORTS:
        verdicts: dict[str, set[str]] = {}
        for row in counted:
            if row["sort"] == sort:
                verdicts.setdefault(row["number"], set()).add(row["verdict"])
        if verdicts:
            worst = (REFUTED, OPEN, CONFIRMED)
            counts[sort] = Counter(min(found, key=worst.index) for found in verdicts.values())
            numbers += len(verdicts)
    intervals = {row["number"] for row in counted if row["interval"] not in ("exact", "none")}
    return Tally(
        claims=len(rows),
        counts=counts,
        repeated=len(counted) - numbers,
        unregistered=len(here) - len(counted),
        elsewhere=len(rows) - len(here),
        intervals=len(intervals),
    )


def tally_lines(found: Tally) -> list[str]:
    """A tally as lines for the terminal."""
    distinct = sum(count.total() for count in found.counts.values())
    claims = "1 claim" if found.claims == 1 else f"{found.claims} claims"
    numbers = "1 number" if distinct == 1 else f"{distinct} numbers"
    lines = [f"{claims} on {numbers}, each counted once" if found.repeated else claims]
    for sort, count in found.counts.items():
        lines.append(f"  {SORTS[sort]}: {totals(count.elements())}")
    if found.unregistered:
        lines.append(f"  not counted, because registered too late or not at all: {found.unregistered}")
    if found.elsewhere:
        lines.append(f"  not counted, because about models that this scale does not have: {found.elsewhere}")
    if found.intervals:
        lines.append(f"  {expected_misses(found)}")
    return lines


def expected_misses(found: Tally) -> str:
    """The number of wrong verdicts that chance explains, as text."""
    intervals = "1 interval of 95%" if found.intervals == 1 else f"{found.intervals} intervals of 95%"
    miss = f"about {number(found.wrong)} will miss the true value by chance"
    return f"{intervals}: {miss}; expect up to as many wrong verdicts"


def verdict_lines(rows: Sequence[Mapping[str, Any]], width: int | None = None) -> list[str]:
    """Verdicts as an aligned table: a head, one line per verdict, and the tally.

    Args:
        width: characters of the terminal; None: do not cut.
    """
    cells = [[" ".join(cell.split()) for cell in _cells(row)] for row in rows]
    table = [list(HEADS), *cells]
    widths = [max(map(len, column)) for column in zip(*table, strict=True)]
    for column in (METHOD, REASON):
        if not any(row[column] for row in cells):
            widths[column] = 0
    if width is not None:
        excess = sum(one + len(GAP) for one in widths if one) - len(GAP) - width
        for column, least in SHRINK:
            cut = max(0, min(excess, widths[column] - least))
            widths[column] -= cut
            excess -= cut + (len(GAP) if cut and not widths[column] else 0)
    lines = [GAP.join(_fit(*cell) for cell in zip(line, widths, strict=True) if cell[1]).rstrip() for line in table]
    return [*lines, *tally_lines(tally(rows))]


def _cells(row: Mapping[str, Any]) -> tuple[str, ...]:
    """The cells of a verdict, in the order of `HEADS`."""
    reason = row["reason"] if row["verdict"] == OPEN else ""
    verdict = row["verdict"] + (", not registered" if row["registered"] is False else "")
    method = "" if row["estimate"] is None or row["interval"] == "exact" else row["interval"].removeprefix("95% ")
    theirs, here = plain(row["paper"]), measured(row)
    return row["target"], row["claim"], theirs, here, method, row["expected"], verdict, reason


def _fit(text: str, width: int) -> str:
    """A text of exactly `width` characters. A cut is marked by three dots and falls between words if possible."""
    if len(text) > width:
        short = textwrap.shorten(text, width, placeholder="...") if width > 3 else ""
        text = short if len(short) > 0.7 * width else f"{text[: max(0, width - 3)]}..."[:width]
    return text.ljust(width)
