"""Numbers, intervals and verdicts as readers see them: at the terminal and in the report."""

from __future__ import annotations

import math
import textwrap
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

CONFIRMED, REFUTED, OPEN = "confirmed", "refuted", "not decided"
VERDICT_NAMES = (CONFIRMED, REFUTED, OPEN)
GAP = "  "
# The columns of printed verdicts. When a terminal is narrow they give way in the order of SHRINK, down to so many
# characters: reasons and the paper's words before our numbers. The verdict never does.
HEADS = ("figure", "claim", "the paper", "here (95% interval)", "expected", "verdict", "why")
TARGET, CLAIM, PAPER, OURS, EXPECTED, VERDICT, REASON = range(7)
SHRINK = (
    *((REASON, 24), (PAPER, 40), (CLAIM, 24), (PAPER, 14), (REASON, 0), (CLAIM, 12)),
    *((column, 4) for column in (PAPER, CLAIM, EXPECTED, OURS, TARGET)),
)


def number(value: float | None) -> str:
    """Three significant digits, whole numbers with commas from 1000 on, "none" for a missing one.

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


def ours(row: Mapping[str, Any]) -> str:
    """A verdict's own number with its interval: "1.23 (1.1 to 1.4)", "1.02 (exact)", "no number"."""
    if row["estimate"] is None:
        return "no number"
    inside = "exact" if row["interval"] == "exact" else span(row["low"], row["high"])
    return f"{number(row['estimate'])} ({inside})"


def totals(verdicts: Iterable[str]) -> str:
    """How many verdicts of each kind.

    >>> totals(["confirmed", "not decided", "confirmed"])
    '2 confirmed, 0 refuted, 1 not decided'
    """
    counts = Counter(verdicts)
    return ", ".join(f"{counts[name]} {name}" for name in VERDICT_NAMES)


def verdict_lines(rows: Sequence[Mapping[str, Any]], width: int | None = None) -> list[str]:
    """Verdicts as an aligned table: a line of heads, one line a verdict, and a line with the totals.

    Args:
        width: characters of the terminal; None: nothing is cut.
    """
    cells = [[" ".join(cell.split()) for cell in _cells(row)] for row in rows]
    table = [list(HEADS), *cells]
    widths = [max(map(len, column)) for column in zip(*table, strict=True)]
    if not any(row[REASON] for row in cells):
        widths[REASON] = 0
    if width is not None:
        excess = sum(widths) + len(GAP) * (len(widths) - 1) - width
        for column, least in SHRINK:
            cut = max(0, min(excess, widths[column] - least))
            widths[column] -= cut
            excess -= cut
    lines = [GAP.join(map(_fit, line, widths)).rstrip() for line in table]
    claims = "1 claim" if len(rows) == 1 else f"{len(rows)} claims"
    return [*lines, f"{claims}: {totals(row['verdict'] for row in rows)}"]


def _cells(row: Mapping[str, Any]) -> tuple[str, ...]:
    """A verdict under `HEADS`."""
    reason = row["reason"] if row["estimate"] is None else ""
    return row["target"], row["claim"], row["paper"], ours(row), row["expected"], row["verdict"], reason


def _fit(text: str, width: int) -> str:
    """Exactly `width` characters; what is left out becomes three dots, cut between words where a word ends near."""
    if len(text) > width:
        short = textwrap.shorten(text, width, placeholder="...") if width > 3 else ""
        text = short if len(short) > 0.7 * width else f"{text[: max(0, width - 3)]}..."[:width]
    return text.ljust(width)
