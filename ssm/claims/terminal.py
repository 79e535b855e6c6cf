"""Verdicts as a table for the terminal."""

from __future__ import annotations

import textwrap
from collections.abc import Collection, Mapping, Sequence
from typing import Any

from ssm.base.prose import plain
from ssm.base.text_table import GAP
from ssm.claims.method import EXACT
from ssm.claims.seeds_needed import needed_words
from ssm.claims.statements import OPEN
from ssm.claims.tally import tally, tally_lines
from ssm.claims.words import WEAK, WEAK_MEANS, measured

WEAK_AMONG = "(tests: those of the finished figures in this folder; the report also counts the reference results)"
# Columns of printed verdicts. On a narrow terminal they are cut in the order of SHRINK, each down to the given number
# of characters. Reasons and the papers' words are cut first, our numbers later, and the verdict never.
HEADS = ("figure", "claim", "the paper", "here (95% interval)", "method of the interval", "expected", "verdict", "why")
TARGET, CLAIM, THEIRS, HERE, METHOD, EXPECTED, VERDICT, REASON = range(8)
SHRINK = (
    *((REASON, 24), (METHOD, 24), (THEIRS, 40), (CLAIM, 24), (THEIRS, 14), (METHOD, 0), (REASON, 0), (CLAIM, 12)),
    *((column, 4) for column in (THEIRS, CLAIM, EXPECTED, HERE, TARGET)),
)


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
    reason = ""
    if row["verdict"] == OPEN:
        needed = needed_words(row)
        reason = f"{needed}; {row['reason']}" if needed else row["reason"]
    mark = WEAK if (row["target"], row["claim"]) in weak else ""
    verdict = row["verdict"] + mark + (", not registered" if row["registered"] is False else "")
    method = "" if row["estimate"] is None or row["interval"] == EXACT else row["interval"].removeprefix("95% ")
    theirs, here = plain(row["paper"]), measured(row)
    return row["target"], row["claim"], theirs, here, method, row["expected"], verdict, reason


def _fit(text: str, width: int) -> str:
    """A text of exactly `width` characters. A cut is marked by three dots and falls between words if possible."""
    if len(text) > width:
        short = textwrap.shorten(text, width, placeholder="...") if width > 3 else ""
        text = short if len(short) > 0.7 * width else f"{text[: max(0, width - 3)]}..."[:width]
    return text.ljust(width)
