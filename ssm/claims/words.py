"""Numbers, intervals, seeds and times as text, for the terminal and the report."""

from __future__ import annotations

import json
import math
import re
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any

from ssm.claims.method import EXACT
from ssm.claims.statements import VERDICT_NAMES

WEAK = "*"  # the mark of a verdict that does not survive the correction
WEAK_MEANS = (
    "decided by the interval, but not after the correction for the number of tests of the paper "
    "(Benjamini and Hochberg, 5%)"
)
BOUND = re.compile(r"-?\d+(?:\.\d+)?(?:e[+-]?\d+)?", re.A)  # in the text of a region


def number(value: float | None, bounds: Collection[float] = ()) -> str:
    """A number with three significant digits. From 1,000 on: all digits, with commas. "none" if there is no number.

    Args:
        bounds: a number that differs from all of these has as many digits as show it.

    >>> number(1.23456), number(12345.6), number(0.5), number(None)
    ('1.23', '12,346', '0.5', 'none')
    >>> number(0.99996), number(0.99996, bounds=[1.0])
    ('1', '0.99996')
    """
    if value is None or math.isnan(value):
        return "none"
    large = 999.5 <= abs(value) < 1e15
    texts = (f"{value:,.{more}f}" if large else f"{value:.{3 + more}g}" for more in range(15))  # the last one is exact
    return next(text for text in texts if value in bounds or float(text.replace(",", "")) not in bounds)


def span(low: float | None, high: float | None, bounds: Collection[float] = ()) -> str:
    """An interval as text. `bounds`: see `number`.

    >>> span(1.2, 1.94)
    '1.2 to 1.94'
    """
    return f"{number(low, bounds)} to {number(high, bounds)}"


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


def to_the_minute(time: str) -> str:
    """A time in UTC for readers.

    >>> to_the_minute("2026-11-22T05:12:20+00:00")
    '2026-11-22 05:12 UTC'
    """
    return f"{time[:16].replace('T', ' ')} UTC"


def bounds_of(row: Mapping[str, Any]) -> list[float]:
    """The bounds of the region of a verdict."""
    return [float(bound) for bound in BOUND.findall(row["expected"])]


def measured(row: Mapping[str, Any]) -> str:
    """The number of a verdict with its interval: "1.23 (1.1 to 1.4)", "1.02 (exact)", "no number"."""
    if row["estimate"] is None:
        return "no number"
    bounds = bounds_of(row)
    inside = "exact" if row["interval"] == EXACT else span(row["low"], row["high"], bounds)
    return f"{number(row['estimate'], bounds)} ({inside})"


def by_seed(row: Mapping[str, Any]) -> dict[str, Any]:
    """Seed -> number of a verdict, a list of numbers, or its named parts. Empty: not from seeds."""
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
