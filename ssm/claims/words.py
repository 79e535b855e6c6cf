"""Numbers, intervals and verdicts as readers see them: at the terminal and in the report."""

from __future__ import annotations

import math
import re
import textwrap
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

CONFIRMED, REFUTED, OPEN = "confirmed", "refuted", "not decided"
VERDICT_NAMES = (CONFIRMED, REFUTED, OPEN)
GAP = "  "


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


def natural(name: str) -> list[tuple[int, str]]:
    """A sorting key under which lg_fig2 comes before lg_fig11."""
    return [(int(part), "") if part.isdigit() else (-1, part) for part in re.split(r"(\d+)", name) if part]


def verdict_lines(rows: Sequence[Mapping[str, Any]], width: int = 160) -> list[str]:
    """One aligned line a verdict, none wider than `width` characters, and a last line with the totals."""
    numbers = [f"{ours(row)}, expected {row['expected']}" for row in rows]
    cells = [(row["target"], row["claim"], number, row["verdict"]) for row, number in zip(rows, numbers, strict=True)]
    target, claim, own, verdict = (
        min(limit, max((len(row[i]) for row in cells), default=0)) for i, limit in enumerate((12, 34, 46, 11))
    )
    says = min(
        width - target - claim - own - verdict - 4 * len(GAP), max((len(row["says"]) for row in rows), default=0)
    )
    lines = [
        GAP.join((_fit(t, target), _fit(c, claim), _fit(row["says"], says), _fit(o, own), v)).rstrip()
        for row, (t, c, o, v) in zip(rows, cells, strict=True)
    ]
    claims = "1 claim" if len(rows) == 1 else f"{len(rows)} claims"
    return [*lines, f"{claims}: {totals(row['verdict'] for row in rows)}"]


def _fit(text: str, width: int) -> str:
    """Exactly `width` characters; what is left out becomes three dots, cut between words where a word ends near."""
    if len(text) > width:
        short = textwrap.shorten(text, width, placeholder="...")
        text = short if len(short) > 0.7 * width else f"{text[: width - 3]}..."
    return text.ljust(width)
