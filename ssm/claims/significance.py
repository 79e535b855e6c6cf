"""P-values of verdicts, and which verdicts survive a correction for the number of tests."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from ssm.claims.claim import Expected
from ssm.claims.estimate import LEVEL, Estimate
from ssm.claims.statements import ELSEWHERE, OPEN, paper_of

FALSE_DISCOVERIES = 0.05  # largest expected share of wrong verdicts among the decided ones that survive


def p_value(found: Estimate, expected: Expected, verdict: str) -> float | None:
    """The two-sided p-value of a verdict: the smallest level at which the interval contains no bound of the region.

    It has the method of the interval. It is below 0.05 if and only if the 95% interval decides the claim.

    Returns:
        None if the number is exact.
    """
    if found.tails is None:
        return None
    p = max(map(found.tails.two_sided, expected.bounds))
    return max(p, 1 - LEVEL) if verdict == OPEN else p  # a limit of the number, or rounding, may leave it open


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
        p = row["p"]
        if p is None:
            continue
        paper = paper_of(row["target"])
        tests.setdefault(paper, {})[row["number"], row["expected"]] = p
        if row["verdict"] != OPEN:
            decided.append((paper, p, (row["target"], row["claim"])))
    limits = {paper: surviving(own.values()) for paper, own in tests.items()}
    return {name for paper, p, name in decided if p > limits[paper]}
