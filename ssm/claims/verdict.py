"""Verdicts: where the whole interval of a claim's quantity lies, and what that decides."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import polars as pl

from ssm.base.tables import VERDICTS
from ssm.claims.estimate import Estimate, UndecidableError
from ssm.claims.panel import Panel
from ssm.claims.quantities import estimate, words
from ssm.claims.words import CONFIRMED, OPEN, REFUTED, number, span
from ssm.specs.claim import ClaimSpec, Expected
from ssm.specs.figure import FigureTask

REHEARSAL = "a rehearsal: its numbers mean nothing"  # the reason of every verdict of a rehearsed task


def judge(task: FigureTask, tables: Path) -> pl.DataFrame:
    """Every claim of a figure, judged from tables alone.

    Args:
        task: the planned figure.
        tables: the folder of its tables.

    Returns:
        A `verdicts` table: a row per claim and panel. A claim on several panels is named `<claim>/<panel>`. A rehearsal
        computes every number, so that it fails where the real thing would, and then decides and reports none.

    Raises:
        TableError: a planned table is missing or broken.
    """
    rows = []
    for claim in task.figure.claims:
        panels = _panels(task, claim)
        for panel in panels:
            name = claim.id if len(panels) == 1 else f"{claim.id}/{panel}"
            rows.append(_row(task, claim, name, panel, tables))
    return pl.DataFrame(rows, schema=dict(VERDICTS.columns))


def decide(low: float, high: float, expected: Expected) -> tuple[str, str]:
    """The verdict on an interval [low, high], and its reason.

    The expected region is open: an interval that only touches a bound does not lie inside.
    """
    bounds = [bound for bound in (expected.above, expected.below) if bound is not None]
    what = f"value {number(low)}" if low == high else f"interval {span(low, high)}"
    region = expected.words()
    if (expected.above is None or low > expected.above) and (expected.below is None or high < expected.below):
        return CONFIRMED, f"{what} lies inside {region}"
    if (expected.above is not None and high <= expected.above) or (
        expected.below is not None and low >= expected.below
    ):
        return REFUTED, f"{what} lies outside {region}"
    inside = " and ".join(number(bound) for bound in bounds if low <= bound <= high)
    return OPEN, f"{what} contains the bound {inside}"


def claim_of(task: FigureTask, name: str) -> ClaimSpec | None:
    """The claim that a row of the verdicts table judges; None when the figure has no such claim any more."""
    wanted = name.split("/", 1)[0]
    return next((claim for claim in task.figure.claims if claim.id == wanted), None)


def _panels(task: FigureTask, claim: ClaimSpec) -> list[str]:
    """The panels (named models) that a claim is judged on: those that have its first arm, or one that lacks it."""
    arms = claim.arms()
    having = dict.fromkeys(
        series.panel
        for series in task.series
        if arms and series.arm == arms[0] and (claim.models is None or series.panel in claim.models)
    )
    return list(having) or [next((series.panel for series in task.series), "")]


def _row(task: FigureTask, claim: ClaimSpec, name: str, panel: str, tables: Path) -> dict[str, Any]:
    numbers: dict[str, Any] = {"estimate": None, "low": None, "high": None, "interval": "none"}
    verdict, reason = OPEN, REHEARSAL
    try:
        if claim.models is not None and panel not in claim.models:
            raise UndecidableError(f"it is about models that the scale {task.scale} does not have")
        found: Estimate = estimate(task, panel, claim.quantity, tables)
        if not task.rehearsal:
            verdict, reason = decide(found.low, found.high, claim.expected)
            numbers = {"estimate": found.value, "low": found.low, "high": found.high, "interval": found.interval}
    except UndecidableError as problem:
        if not task.rehearsal:
            reason = str(problem)
    return {
        "target": task.figure.target,
        "claim": name,
        "says": claim.says,
        "paper": claim.paper,
        "quantity": words(Panel(task, panel, tables), claim.quantity),
        **numbers,
        "expected": claim.expected.words(),
        "verdict": verdict,
        "reason": reason,
    }
