"""P-values of verdicts, and which verdicts survive a correction for the number of tests."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping
from typing import Any

from ssm.base.lazy import special
from ssm.claims.claim import Expected
from ssm.claims.estimate import LEVEL, Estimate
from ssm.claims.statements import ELSEWHERE, OPEN, paper_of

FALSE_DISCOVERIES = 0.05  # largest expected share of wrong verdicts among the decided ones that survive
STUDENT = re.compile(r"Student t over (\d+) ")
STEPS = re.compile(r"smallest of (\d+) steps")


def p_value(found: Estimate, expected: Expected, verdict: str) -> float | None:
    """The two-sided p-value of a verdict: the smallest level at which the interval contains no bound of the region.

    It has the method of the interval. It is below 0.05 if and only if the 95% interval decides the claim.

    Returns:
        None if the number is exact.
    """
    if found.tails is None:
        return None
    p = max(found.tails.two_sided(bound) for bound in (expected.above, expected.below) if bound is not None)
    return max(p, 1 - LEVEL) if verdict == OPEN else p  # a limit of the number, or rounding, may leave it open


def p_of_interval(row: Mapping[str, Any], expected: Expected) -> float | None:
    """The p-value of an older verdict, which has none: from its estimate, the ends of its interval and its method.

    Student t intervals give the exact p-value (approximate if the interval is the smallest of several steps). For other
    methods, the distribution between the estimate and the bound is taken as normal.

    Args:
        row: `estimate`, `low`, `high` and `interval` of a verdict.

    Returns:
        None if the number is exact, or missing.
    """
    estimate, low, high, method = (row[name] for name in ("estimate", "low", "high", "interval"))
    if estimate is None or low is None or high is None or not low < high or method == "exact":
        return None
    student, steps = STUDENT.search(method), STEPS.search(method)
    freedom = int(student[1]) - 1 if student else math.inf
    logarithmic = low > 0 and _asymmetry(*map(math.log, (estimate, low, high))) < _asymmetry(estimate, low, high)
    found = []
    for bound in (expected.above, expected.below):
        if bound is None:
            continue
        tests = int(steps[1]) if steps and bound > estimate else 1  # the upper end of the smallest step is corrected
        if logarithmic and bound <= 0:
            found.append(0.0)  # no ratio is 0 or less
            continue
        values = (estimate, low, high, bound)
        value, lower, upper, at = map(math.log, values) if logarithmic else values
        width = value - lower if at < value else upper - value
        far = abs(at - value) / width if width else math.inf
        critical = _quantile(1 - (1 - LEVEL) / 2 / tests, freedom)
        found.append(min(1.0, 2 * tests * _tail(far * critical, freedom)))
    return max(found)


def surviving(p_values: Iterable[float]) -> float:
    """The largest p-value that survives the correction of Benjamini and Hochberg (1995).

    Returns:
        0 if none survives.
    """
    ordered = sorted(p_values)
    limits = (FALSE_DISCOVERIES * rank / len(ordered) for rank in range(1, len(ordered) + 1))
    return max((p for p, limit in zip(ordered, limits, strict=True) if p <= limit), default=0.0)


def weak_verdicts(rows: Iterable[Mapping[str, Any]]) -> set[tuple[str, str]]:
    """(target, claim) of the decided verdicts that do not survive the correction for all tests of their paper.

    Two verdicts with the same region on the same number are one test. Verdicts that are not counted are no tests.
    """
    tests: dict[str, dict[tuple[str, str], float]] = {}  # paper -> (number, region) -> p-value
    decided = []
    for row in rows:
        if row["sort"] == ELSEWHERE or row["registered"] is False:
            continue
        p = row.get("p")
        if p is None and not row.get("by_seed"):  # recorded together
            p = p_of_interval(row, Expected.of_words(row["expected"]))
        if p is None:
            continue
        paper = paper_of(row["target"])
        tests.setdefault(paper, {})[row["number"], row["expected"]] = p
        if row["verdict"] != OPEN:
            decided.append((paper, p, (row["target"], row["claim"])))
    limits = {paper: surviving(own.values()) for paper, own in tests.items()}
    return {name for paper, p, name in decided if p > limits[paper]}


def _asymmetry(value: float, low: float, high: float) -> float:
    """How far the middle of an interval is from the estimate, as a share of its length."""
    return abs(2 * value - low - high) / (high - low)


def _quantile(level: float, freedom: float) -> float:
    return float(special.ndtri(level) if freedom == math.inf else special.stdtrit(freedom, level))


def _tail(distance: float, freedom: float) -> float:
    """The probability of more than `distance` standard errors, on one side."""
    return float(special.ndtr(-distance) if freedom == math.inf else special.stdtr(freedom, -distance))
