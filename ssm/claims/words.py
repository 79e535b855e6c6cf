"""Numbers, intervals and verdicts as text, for the terminal and the report."""

from __future__ import annotations

import json
import math
import textwrap
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ssm.base.prose import plain
from ssm.claims.statements import ELSEWHERE, OPEN, OUTCOMES, VERDICT_NAMES, outcome, statements

PAPER, DEFINITION, ADDED = "paper", "definition", "ours"  # kinds of statements
SORTS = {PAPER: "statements of the papers", DEFINITION: "definitions", ADDED: "added checks"}
WEAK = "*"  # the mark of a verdict that does not survive the correction
WEAK_MEANS = (
    "decided by the interval, but not after the correction for the number of tests of the paper "
    "(Benjamini and Hochberg, 5%)"
)
WEAK_AMONG = "(tests: those of the finished figures in this folder; the report also counts the reference results)"
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


def spoken_seeds(seeds: Iterable[int]) -> str:
    """Seeds as text, with a range for consecutive ones.

    >>> spoken_seeds((11, 12, 13, 20))
    '11 to 13, 20'
    """
    runs: list[list[int]] = []
    for seed in sorted(seeds):
        if runs and seed == runs[-1][-1] + 1:
            runs[-1].append(seed)
        else:
            runs.append([seed])
    return ", ".join(str(run[0]) if len(run) == 1 else f"{run[0]} to {run[-1]}" for run in runs)


def measured(row: Mapping[str, Any]) -> str:
    """The number of a verdict with its interval: "1.23 (1.1 to 1.4)", "1.02 (exact)", "no number"."""
    if row["estimate"] is None:
        return "no number"
    inside = "exact" if row["interval"] == "exact" else span(row["low"], row["high"])
    return f"{number(row['estimate'])} ({inside})"


def by_seed(row: Mapping[str, Any]) -> dict[str, Any]:
    """Seed -> number of a verdict, a list of numbers, or its named parts. Empty: not from seeds, or not recorded."""
    found = row.get("by_seed") or {}
    return dict(json.loads(found)) if isinstance(found, str) else dict(found)


def seed_words(row: Mapping[str, Any]) -> str:
    """The number of every seed as text: "31: 2.1, 32: 1.94"."""

    def words(value: Any) -> str:
        if isinstance(value, Mapping):
            return " ".join(f"{name} {number(one)}" for name, one in value.items())
        return " ".join(map(number, value if isinstance(value, list | tuple) else [value]))

    shown = ", ".join(f"{seed}: {words(value)}" for seed, value in by_seed(row).items())
    return shown or "no numbers of seeds"


def totals(verdicts: Iterable[str], names: Sequence[str] = VERDICT_NAMES) -> str:
    """The number of verdicts of each of these kinds.

    >>> totals(["confirmed", "not decided", "confirmed"])
    '2 confirmed, 0 refuted, 1 not decided'
    """
    counts = Counter(verdicts)
    return ", ".join(f"{counts[name]} {name}" for name in names)


@dataclass(frozen=True)
class Tally:
    """Counts of statements. A statement on several models counts once."""

    claims: int  # verdicts
    counts: dict[str, Counter[str]]  # kind of statement -> outcome -> distinct statements
    repeated: int  # statements on the numbers and regions of another statement of their kind
    unregistered: int  # verdicts that were registered too late or not at all: not counted
    elsewhere: int  # verdicts on models that this scale does not have: not counted
    intervals: int  # distinct numbers with a 95% interval

    @property
    def statements(self) -> int:
        """The number of distinct statements."""
        return sum(count.total() for count in self.counts.values())

    @property
    def wrong(self) -> float:
        """Expected number of intervals that miss the true value: an upper bound on the expected wrong verdicts."""
        return MISSES * self.intervals


def tally(rows: Iterable[Mapping[str, Any]]) -> Tally:
    """Count statements.

    A statement is confirmed if all its verdicts are "confirmed"; refuted and not decided are analogous. Otherwise it is
    mixed. Several statements of one kind that compare the very same numbers with the same regions count as one. Without
    a number, as on arms that a scale does not have, they must also have the same name.
    """
    rows = list(rows)
    here = [row for row in rows if row["sort"] != ELSEWHERE]
    counted = [row for row in here if row["registered"] is not False]
    counts, repeated = {}, 0
    for sort in SORTS:
        of_kind = statements(row for row in counted if row["sort"] == sort)
        verdicts: dict[frozenset[tuple[str, ...]], set[str]] = {}
        for statement in of_kind:
            judged = frozenset(
                (row["number"], row["expected"], row["claim"] if row["estimate"] is None else "")
                for row in statement.rows
            )
            verdicts.setdefault(judged, set()).update(row["verdict"] for row in statement.rows)
        if verdicts:
            counts[sort] = Counter(map(outcome, verdicts.values()))
            repeated += len(of_kind) - len(verdicts)
    intervals = {row["number"] for row in counted if row["interval"] not in ("exact", "none")}
    return Tally(
        claims=len(rows),
        counts=counts,
        repeated=repeated,
        unregistered=len(here) - len(counted),
        elsewhere=len(rows) - len(here),
        intervals=len(intervals),
    )


def tally_lines(found: Tally) -> list[str]:
    """A tally as lines for the terminal."""
    claims = "1 verdict" if found.claims == 1 else f"{found.claims} verdicts"
    distinct = "1 statement" if found.statements == 1 else f"{found.statements} statements"
    lines = [f"{claims} on {distinct}, each counted once"]
    for sort, count in found.counts.items():
        lines.append(f"  {SORTS[sort]}: {totals(count.elements(), OUTCOMES)}")
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


def verdict_lines(
    rows: Sequence[Mapping[str, Any]], width: int | None = None, weak: Collection[tuple[str, str]] = ()
) -> list[str]:
    """Verdicts as an aligned table: a head, one line per verdict, and the tally.

    Args:
        width: characters of the terminal; None: do not cut.
        weak: (target, claim) of the verdicts that get the mark WEAK.
    """
    cells = [[" ".join(cell.split()) for cell in _cells(row, weak)] for row in rows]
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
    return [*lines, *tally_lines(tally(rows)), *([f"  {WEAK} {WEAK_MEANS}", f"    {WEAK_AMONG}"] if weak else [])]


def _cells(row: Mapping[str, Any], weak: Collection[tuple[str, str]]) -> tuple[str, ...]:
    """The cells of a verdict, in the order of `HEADS`."""
    reason = row["reason"] if row["verdict"] == OPEN else ""
    mark = WEAK if (row["target"], row["claim"]) in weak else ""
    verdict = row["verdict"] + mark + (", not registered" if row["registered"] is False else "")
    method = "" if row["estimate"] is None or row["interval"] == "exact" else row["interval"].removeprefix("95% ")
    theirs, here = plain(row["paper"]), measured(row)
    return row["target"], row["claim"], theirs, here, method, row["expected"], verdict, reason


def _fit(text: str, width: int) -> str:
    """A text of exactly `width` characters. A cut is marked by three dots and falls between words if possible."""
    if len(text) > width:
        short = textwrap.shorten(text, width, placeholder="...") if width > 3 else ""
        text = short if len(short) > 0.7 * width else f"{text[: max(0, width - 3)]}..."[:width]
    return text.ljust(width)
