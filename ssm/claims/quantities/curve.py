"""Numbers of curves: of a family of arms that differ by a number, or of a column of one arm's table."""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import ClassVar, TypeVar

import numpy as np

from ssm.base.columns import matrices
from ssm.base.lazy import polars as pl
from ssm.base.schema import Schema
from ssm.claims.estimate import NOTHING, Reading, UndecidableError, resample
from ssm.claims.panel import Panel
from ssm.claims.quantities.base import SeedEstimator
from ssm.specs.base import Setting
from ssm.specs.families import value_text
from ssm.specs.figure import Series
from ssm.specs.quantities.base import Quantity
from ssm.specs.quantities.curve import CurveQuantity
from ssm.specs.quantities.sweep import Sweep

C = TypeVar("C", bound=CurveQuantity)


@dataclass(frozen=True)
class Points:
    """One seed's curve; where it is of one table, also on resampled sequences."""

    x: np.ndarray  # (K,) ascending
    y: np.ndarray  # (K,)
    draws: np.ndarray = field(default_factory=lambda: NOTHING)  # (DRAWS, K)
    sequences: int = 0  # 0: it is of several tables


class CurveEstimator(SeedEstimator[C]):
    """Reads a number of the curve of every seed."""

    fewest: ClassVar[int] = 2  # points of which a curve has such a number

    @abstractmethod
    def number(self, x: np.ndarray, y: np.ndarray) -> np.ndarray:
        """The number of each of R curves, or its logarithm: (K,), (R, K) -> (R,); NaN where a curve has none."""

    @abstractmethod
    def called(self) -> str:
        """What is computed of a curve, in words."""

    def missing(self, points: Points) -> str:
        """Why a curve has no number."""
        return f"its points from {points.x[0]:g} to {points.x[-1]:g} give no finite number"

    @property
    def compared(self) -> bool:
        return self.spec.compared

    @property
    def logarithmic(self) -> bool:
        return False

    def readings(self, panel: Panel) -> dict[int, Reading]:
        found = self._read(self.points(panel))
        if not self.compared:
            return found
        others = self._read(self.points(panel, against=True))
        seeds = sorted(found.keys() & others.keys())
        if not seeds:
            raise UndecidableError("the two curves share no seed")
        return {seed: found[seed] - others[seed] for seed in seeds}

    def points(self, panel: Panel, against: bool = False) -> dict[int, Points]:
        """Seed -> curve; with `against`, of the other one."""
        spec = self.spec
        if spec.sweep is not None:
            return swept(spec.sweep, panel, against)
        arm = spec.against if against else spec.arm
        there = panel.of(spec.against_model) if against and spec.against_model else panel
        where = spec.against_where if against and spec.against_where is not None else spec.where
        return {seed: self._column(there, series, where) for seed, series in there.series(str(arm)).items()}

    def words(self, panel: Panel) -> str:
        spec = self.spec
        if spec.sweep is None:
            column = f"exponential of {spec.column}" if spec.exponential else spec.column
            where = _rows(spec.where)
            if spec.between is not None:
                where += f", {spec.x} {spec.between[0]:g} to {spec.between[1]:g}"
            what = f"{column} against {spec.x} of {panel.label(str(spec.arm))} in {spec.measurement}{where}"
            model = f" of {spec.against_model}" if spec.against_model else ""
            other = f"{panel.label(spec.against)}{model}{_rows(spec.against_where or {})}" if spec.against else ""
        else:
            what = f"{_members(spec.sweep, panel)}: {_of(spec.sweep, panel)}"
            other = _members(spec.sweep, panel, against=True) if spec.sweep.compared else ""
        text = f"{self.called()}, of {what}"
        compared = "ratio to" if self.logarithmic else "difference from"
        return f"{text}; {compared} the same of {other}" if other else text

    def _read(self, curves: dict[int, Points]) -> dict[int, Reading]:
        found = {}
        for seed, points in curves.items():
            value = float(self.number(points.x, points.y[None])[0])
            draws = self.number(points.x, points.draws) if len(points.draws) else NOTHING
            if np.isfinite(points.y).all() and not (math.isfinite(value) and np.isfinite(draws).all()):
                raise UndecidableError(f"seed {seed}: {self.missing(points)}")
            found[seed] = Reading(value, draws=draws, sequences=points.sequences)
        return found

    def _column(self, panel: Panel, series: Series, where: Mapping[str, Setting]) -> Points:
        table, schema = panel.any_table(series, str(self.spec.measurement))
        return self.points_of(panel.rows(table, schema, where), schema, series, panel)

    def points_of(self, rows: pl.DataFrame, schema: Schema, series: Series, panel: Panel) -> Points:
        """The curve that some rows of a seed's table are."""
        spec = self.spec
        x, samples = matrices(rows, schema, str(spec.x), str(spec.column))
        if spec.between is not None:
            inside = (spec.between[0] <= x) & (x <= spec.between[1])
            apart = len(samples) == len(x)
            x, samples = x[inside], [samples[i] for i in np.flatnonzero(inside)] if apart else [samples[0][:, inside]]
        if len(x) < self.fewest:
            there = f"{spec.measurement} of '{series.arm}' has {len(x)} {spec.x} at this scale"
            raise UndecidableError(f"{there}: no curve")
        y = np.concatenate([one.mean(axis=0) for one in samples])
        fewest = min(len(one) for one in samples)
        draws = NOTHING
        if fewest > 1:
            draws = np.concatenate([resample(one, apart=place)[0] for place, one in enumerate(samples)], axis=1)
        if spec.exponential:
            with np.errstate(over="ignore"):
                y, draws = np.exp(y), np.exp(draws)
        return Points(x, y, draws, fewest)


def swept(sweep: Sweep, panel: Panel, against: bool = False) -> dict[int, Points]:
    """Seed -> curve of a family of arms; of the seeds that all its arms have.

    Raises:
        UndecidableError: the family has no two arms at this scale, or no two seeds.
        TableError: a planned table is missing or broken.
    """
    members = sweep.members(panel.name, panel.task.series, against)
    x = np.array([number for number, _ in members])
    if len(x) < 2 or len(np.unique(x)) < len(x):
        there = ", ".join(f"{arm} ({number:g})" for number, arm in members) or "none"
        raise UndecidableError(f"a sweep needs two arms or more, each at a number of its own; at this scale: {there}")
    numbers = [numbers_of(sweep.quantity(arm), panel) for _, arm in members]
    seeds = set.intersection(*(set(one) for one in numbers))
    if len(seeds) < 2:
        raise UndecidableError(f"the arms of a sweep share {len(seeds)} of their seeds: two are needed for an interval")
    return {seed: Points(x, np.array([one[seed] for one in numbers])) for seed in sorted(seeds)}


def numbers_of(quantity: Quantity, panel: Panel) -> dict[int, float]:
    """Seed -> the number of a quantity of an arm. Raises as `Estimator.estimate`."""
    estimator = estimator_of(quantity)
    found = {seed: reading.value for seed, reading in estimator.readings(panel).items()}
    with np.errstate(over="ignore"):
        return {seed: float(np.exp(value)) if estimator.logarithmic else value for seed, value in found.items()}


def estimator_of(quantity: Quantity) -> SeedEstimator[Quantity]:
    """How a quantity of an arm is read."""
    from ssm.claims.quantities import ESTIMATORS  # the registry holds what is built from this module too

    found = ESTIMATORS[quantity.kind](quantity)
    assert isinstance(found, SeedEstimator)
    return found


def _rows(where: Mapping[str, Setting]) -> str:
    """Which rows are read, in words."""
    return "".join(f", {name} {value}" for name, value in where.items())


def _members(sweep: Sweep, panel: Panel, against: bool = False) -> str:
    """The family in words."""
    members = sweep.members(panel.name, panel.task.series, against)
    if sweep.over is None:
        return ", ".join(f"{panel.label(arm)} ({number:g})" for number, arm in members)
    where = ((sweep.against_where or {}) if against else sweep.where).items()
    family = (sweep.against_family or sweep.family) if against else sweep.family
    values = ", ".join(f"{number:g}" for number, _ in members)
    others = "".join(f", {axis} {value_text(value)}" for axis, value in where)
    return f"{f'{family}, ' if family else ''}{sweep.over} {values}{others}"


def _of(sweep: Sweep, panel: Panel) -> str:
    """What is read of every arm."""
    members = sweep.members(panel.name, panel.task.series)
    return estimator_of(sweep.quantity(members[0][1] if members else "each arm")).words(panel)
