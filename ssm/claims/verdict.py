"""Verdicts: compare the interval of a claim's quantity with the region that confirms the claim."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from datetime import datetime
from pathlib import Path
from typing import Any

from ssm.base.errors import TableError, shown
from ssm.base.lazy import polars as pl
from ssm.base.tables import VERDICTS, read_provenance, read_table
from ssm.claims.claim import ClaimSpec, Expected, JudgedFigure
from ssm.claims.estimate import BySeed, Estimate, UndecidableError
from ssm.claims.method import NONE
from ssm.claims.panel_tables import PanelTables
from ssm.claims.quantity import FigureQuantity
from ssm.claims.significance import p_value
from ssm.claims.statements import ADDED, CONFIRMED, DEFINITION, ELSEWHERE, OPEN, PAPER, REFUTED
from ssm.claims.words import number, span, to_the_minute

DRY_RUN = "a dry run: its numbers mean nothing"  # reason of every verdict of a dry run
ONE_SEED = "one seed of arms that were trained separately: the interval does not include the spread between seeds"


def read_verdicts(path: Path) -> list[dict[str, Any]]:
    """The rows of a figure's table of verdicts.

    Raises:
        TableError: the table is missing or broken, or it is a copy with the name of another file.
    """
    rows = list(read_table(path, VERDICTS).iter_rows(named=True))
    other = next((row["target"] for row in rows if row["target"] != path.stem), None)
    if other is not None:
        raise TableError(f"{path}: holds verdicts on {shown(other)}; move it out of this folder")
    return rows


def judge(task: JudgedFigure, tables: Path) -> pl.DataFrame:
    """Judge all claims of a figure from its tables.

    Args:
        task: the planned figure.
        tables: the folder of its tables.

    Returns:
        A `verdicts` table with one row for each of `task.verdicts`. A dry run computes all numbers, so that it fails
        where a real run would fail. It reports no numbers and decides nothing.

    Raises:
        TableError: a planned table is missing or broken.
    """
    rows = [_row(task, claim, name, panel, tables) for name, claim, panel in task.verdicts]
    return pl.DataFrame(rows, schema=dict(VERDICTS.columns))


def decide(low: float, high: float, expected: Expected) -> tuple[str, str]:
    """The verdict on an interval [low, high], and its reason.

    The expected region is open: an interval that touches a bound is not inside.
    """
    bounds = expected.bounds
    what = f"value {number(low, bounds)}" if low == high else f"interval {span(low, high, bounds)}"
    region = expected.words()
    if (expected.above is None or low > expected.above) and (expected.below is None or high < expected.below):
        return CONFIRMED, f"{what} lies inside {region}"
    if (expected.above is not None and high <= expected.above) or (
        expected.below is not None and low >= expected.below
    ):
        return REFUTED, f"{what} lies outside {region}"
    inside = " and ".join(number(bound) for bound in bounds if low <= bound <= high)
    return OPEN, f"{what} contains the bound {inside}"


def _rounded(number: float, expected: Expected, rounding: float) -> float:
    """The number; or 0 or a bound of the region, if the number differs from it by rounding only."""
    return next((mark for mark in (*expected.bounds, 0.0) if abs(number - mark) <= rounding), number)


def number_of(task: JudgedFigure, name: str) -> str:
    """The hash of everything that decides a verdict; without a registration, as in a dry run, its name."""
    return task.numbers.get(name, f"{task.target}/{name}")


def _row(task: JudgedFigure, claim: ClaimSpec, name: str, panel: str, tables: Path) -> dict[str, Any]:
    elsewhere = claim.models is not None and panel not in claim.models
    by_seed: BySeed = {}
    decided = _undecided(DRY_RUN)
    try:
        if elsewhere:
            raise UndecidableError(f"this claim is about models that the scale {task.scale} does not have")
        found = claim.quantity.estimate(PanelTables(task, panel, tables))
        if not task.dry_run:
            decided, by_seed = _decided(task, claim, panel, found), found.by_seed
    except UndecidableError as problem:
        if not task.dry_run:
            decided, by_seed = _undecided(str(problem)), problem.by_seed
    registered, registration = _registration(task, name, claim, panel, tables)
    return {
        "target": task.target,
        "claim": name,
        "says": claim.says,
        "paper": claim.paper,
        "quantity": claim.quantity.words(PanelTables(task, panel, tables)),
        **decided,
        "expected": claim.expected.words(),
        "sort": ELSEWHERE if elsewhere else ADDED if claim.ours else DEFINITION if claim.quantity.definition else PAPER,
        "number": number_of(task, name),
        "registered": registered,
        "registration": registration,
        "by_seed": "" if isinstance(claim.quantity, FigureQuantity) else _as_json(by_seed),
    }


def _undecided(reason: str) -> dict[str, Any]:
    """The columns of a row that `_decided` returns, without an estimate."""
    none = dict.fromkeys(("estimate", "low", "high", "p"))
    return {**none, "interval": NONE, "verdict": OPEN, "reason": reason}


def _decided(task: JudgedFigure, claim: ClaimSpec, panel: str, found: Estimate) -> dict[str, Any]:
    """The columns of a row that follow from an estimate: the rounded numbers, the verdict and its reason."""
    unrounded = (found.value, found.low, found.high)
    value, low, high = (_rounded(one, claim.expected, claim.quantity.rounding) for one in unrounded)
    numbers = {"estimate": value, "low": low, "high": high, "interval": found.interval.words()}
    if _separate_trainings(task, claim, panel):
        return {**numbers, "p": None, "verdict": OPEN, "reason": ONE_SEED}
    verdict, reason = decide(low, high, claim.expected)
    exactly, _ = decide(found.low, found.high, claim.expected)
    if exactly != verdict:
        reason += f"; only rounding would make it {exactly}"
    return {**numbers, "p": p_value(found, claim.expected, verdict), "verdict": verdict, "reason": reason}


def _as_json(by_seed: BySeed) -> str:
    """Seed -> number as JSON, with ten digits. A number that is not finite is null. Empty without numbers."""

    def plain(value: float | tuple[float, ...] | Mapping[str, float]) -> Any:
        if isinstance(value, tuple):
            return [plain(one) for one in value]
        if isinstance(value, Mapping):
            return {name: plain(one) for name, one in value.items()}
        return float(f"{value:.10g}") if math.isfinite(value) else None

    return json.dumps({seed: plain(value) for seed, value in by_seed.items()}) if by_seed else ""


def _separate_trainings(task: JudgedFigure, claim: ClaimSpec, panel: str) -> bool:
    """Whether a claim compares arms that do not share their initial weights, with a single seed each.

    The seed of the training then dominates the difference, and an interval over sequences does not include it. Arms
    that continue from the same weights share the effect of the seed. Published weights count as one training, no
    matter how many seeds read them.
    """
    places = task.series_of(claim, panel).values()
    seeds: set[int] = set.intersection(*({one.seed for one in series} for series in places)) if places else set()
    weights = {one.origin or one.run for series in places for one in series if one.seed in seeds}
    published = {one.published for series in places for one in series if one.seed in seeds}
    return (len(seeds) == 1 and len(weights) > 1) or len(published) > 1


def _registration(task: JudgedFigure, name: str, claim: ClaimSpec, panel: str, tables: Path) -> tuple[bool | None, str]:
    """Whether the claim was registered before the tables that decide it were measured; and the same as text."""
    if task.dry_run:
        return None, ""
    date = task.registered.get(name)
    if date is None:
        return False, "not registered: no registration has this claim with these seeds"
    series = [one for series in task.series_of(claim, panel).values() for one in series]
    found = {one.tables[read] for one in series for read in claim.quantity.measurement_names if read in one.tables}
    paths = [tables / f"{table}.parquet" for table in sorted(found)]
    if not series:
        kinds = {*claim.quantity.reads, *claim.quantity.measurement_names}
        paths = [tables / f"{table}.parquet" for kind in sorted(kinds) for table in task.own_tables(kind)]
    written = [str(read_provenance(path).get("written", "")) for path in paths]
    if not all(written):
        return False, f"registered {to_the_minute(date)}, but its tables do not say when they were measured"
    early = min(written, key=datetime.fromisoformat, default=None)
    if early is not None and datetime.fromisoformat(early) < datetime.fromisoformat(date):
        return False, f"registered {to_the_minute(date)}, but measured earlier, {to_the_minute(early)}"
    return True, f"registered {to_the_minute(date)}, before it was measured"
