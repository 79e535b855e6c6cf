"""Numbers of curves: of a family of arms that differ by a number, or of a column of one arm's table."""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Annotated, Any, ClassVar, Self

import numpy as np
from pydantic import Field, model_validator

from ssm.base.columns import matrices
from ssm.base.lazy import polars as pl
from ssm.base.schema import Schema
from ssm.claims.estimate import NOTHING, Reading, UndecidableError, resample
from ssm.claims.families import Member, value_text
from ssm.claims.panel_tables import PanelTables
from ssm.claims.quantity import PanelArm, SeedQuantity
from ssm.claims.series import Series
from ssm.claims.sweep import Sweep
from ssm.specs.base import Name, Setting


@dataclass(frozen=True)
class Points:
    """One seed's curve; where it is of one table, also on resampled sequences."""

    x: np.ndarray  # (K,) ascending
    y: np.ndarray  # (K,)
    draws: np.ndarray = field(default_factory=lambda: NOTHING)  # (DRAWS, K)
    sequences: int = 0  # 0: it is of several tables


class CurveQuantity(SeedQuantity):
    """A number of a curve.

    `sweep`: a quantity against the number in which arms differ. Or `arm`, `measurement`, `x` and `column`: a column of
    one arm's table against another, of the rows of `where`, and of the points `between` two of x, both included; with
    `against` compared with the same of another arm, there of the rows of `against_where` if that is given.
    """

    reads: ClassVar[tuple[str, ...]] = ()  # any
    later: ClassVar[frozenset[str]] = frozenset({"between", "against_where"})
    fewest: ClassVar[int] = 2  # points of which a curve has such a number
    sweep: Sweep | None = None  # a quantity of arms that differ by a number, in place of a column of one arm
    arm: str | None = None  # the arm whose column is read
    against: str | None = None  # another arm, whose curve this one is compared with
    against_model: str | None = None  # the panel in which that arm stands; none: the panel that is judged
    measurement: Name | None = None  # the name of the measurement that is read
    x: Name | None = None  # the column along the horizontal axis
    column: Name | None = None  # the column along the vertical axis
    where: dict[Name, Setting] = {}  # rows of these settings alone
    against_where: dict[Name, Setting] | None = None  # None: as `where`
    between: Annotated[tuple[float, float], Field(strict=False)] | None = None  # two values of x; none: all of them
    exponential: bool = False  # the column is a logarithm (a loss in nats), and its exponential is meant

    @model_validator(mode="after")
    def _one_curve(self) -> Self:
        of_arm = (self.arm, self.measurement, self.x, self.column)
        if self.sweep is None and None in of_arm:
            raise ValueError("give either 'sweep', or all of 'arm', 'measurement', 'x' and 'column'")
        chosen = (self.where or None, self.against_where, self.between, self.exponential or None)
        others = (*of_arm, self.against, self.against_model, *chosen)
        if self.sweep is not None and any(one is not None for one in others):
            raise ValueError("a 'sweep' says by itself what is read, of which arms")
        if self.against_model is not None and self.against is None:
            raise ValueError("'against_model' needs 'against', the arm of that model")
        if self.against_where is not None and self.against is None:
            raise ValueError("'against_where' needs 'against', the arm whose rows it chooses")
        return self

    @property
    def compared(self) -> bool:
        """Whether it is compared with the number of another curve."""
        return self.against is not None or (self.sweep is not None and self.sweep.compared)

    @property
    def names(self) -> tuple[str, ...]:
        return self.sweep.quantity().names if self.sweep is not None else (str(self.measurement),)

    def named(self) -> dict[str, tuple[str, str | None]]:
        if self.sweep is not None:
            return {f"sweep.of.{field}": name for field, name in self.sweep.quantity().named().items()}
        return {"measurement": (str(self.measurement), None)}

    def arms(self) -> tuple[str, ...]:
        if self.sweep is not None:
            return self.sweep.named_arms()
        return tuple(arm for arm in (self.arm, self.against) if arm is not None)

    def check(self, families: Mapping[str, Mapping[str, Member]], arms: Collection[str]) -> None:
        if self.sweep is not None:
            self.sweep.check(families)

    def about(self, series: Series) -> bool:
        return self.sweep.about(series) if self.sweep is not None else series.arm == self.arm

    def panel_arms(self, panel: str, series: Sequence[Series] = ()) -> tuple[PanelArm, ...]:
        if self.sweep is not None:
            return self.sweep.panel_arms(panel, series)
        places = [(panel, str(self.arm))]
        if self.against is not None:
            places.append((self.against_model or panel, self.against))
        return tuple(dict.fromkeys(places))

    def canonical(self, panel: str, series: Sequence[Series] = ()) -> dict[str, Any]:
        curve = {"sweep", "arm", "against", "against_model", "measurement"}
        content = {key: value for key, value in self.content().items() if key not in curve}
        if self.sweep is not None:
            return content | {"sweep": self.sweep.canonical(panel, series)}
        order = self.panel_arms(panel, series)
        other = None if self.against is None else order.index((self.against_model or panel, self.against))
        return content | {"arm": 0, "against": other}

    @abstractmethod
    def number(self, x: np.ndarray, y: np.ndarray) -> np.ndarray:
        """The number of each of R curves, or its logarithm: (K,), (R, K) -> (R,); NaN where a curve has none."""

    @abstractmethod
    def called(self) -> str:
        """What is computed of a curve, in words."""

    def missing(self, points: Points) -> str:
        """Why a curve has no number."""
        return f"its points from {points.x[0]:g} to {points.x[-1]:g} give no finite number"

    def readings(self, panel: PanelTables) -> dict[int, Reading]:
        found = self._read(self.points(panel))
        if not self.compared:
            return found
        others = self._read(self.points(panel, against=True))
        seeds = sorted(found.keys() & others.keys())
        if not seeds:
            raise UndecidableError("the two curves share no seed")
        return {seed: found[seed] - others[seed] for seed in seeds}

    def points(self, panel: PanelTables, against: bool = False) -> dict[int, Points]:
        """Seed -> curve; with `against`, of the other one."""
        if self.sweep is not None:
            return swept(self.sweep, panel, against)
        arm = self.against if against else self.arm
        there = panel.of(self.against_model) if against and self.against_model else panel
        where = self.against_where if against and self.against_where is not None else self.where
        return {seed: self._column(there, series, where) for seed, series in there.series(str(arm)).items()}

    def words(self, panel: PanelTables) -> str:
        if self.sweep is None:
            column = f"exponential of {self.column}" if self.exponential else self.column
            where = _rows(self.where)
            if self.between is not None:
                where += f", {self.x} {self.between[0]:g} to {self.between[1]:g}"
            what = f"{column} against {self.x} of {panel.label(str(self.arm))} in {self.measurement}{where}"
            model = f" of {self.against_model}" if self.against_model else ""
            other = f"{panel.label(self.against)}{model}{_rows(self.against_where or {})}" if self.against else ""
        else:
            what = f"{_members(self.sweep, panel)}: {_of(self.sweep, panel)}"
            other = _members(self.sweep, panel, against=True) if self.sweep.compared else ""
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

    def _column(self, panel: PanelTables, series: Series, where: Mapping[str, Setting]) -> Points:
        table, schema = panel.any_table(series, str(self.measurement))
        return self.points_of(panel.rows(table, schema, where), schema, series, panel)

    def points_of(self, rows: pl.DataFrame, schema: Schema, series: Series, panel: PanelTables) -> Points:
        """The curve that some rows of a seed's table are."""
        x, samples = matrices(rows, schema, str(self.x), str(self.column))
        if self.between is not None:
            inside = (self.between[0] <= x) & (x <= self.between[1])
            apart = len(samples) == len(x)
            x, samples = x[inside], [samples[i] for i in np.flatnonzero(inside)] if apart else [samples[0][:, inside]]
        if len(x) < self.fewest:
            there = f"{self.measurement} of '{series.arm}' has {len(x)} {self.x} at this scale"
            raise UndecidableError(f"{there}: no curve")
        y = np.concatenate([one.mean(axis=0) for one in samples])
        fewest = min(len(one) for one in samples)
        draws = NOTHING
        if fewest > 1:
            draws = np.concatenate([resample(one, apart=place)[0] for place, one in enumerate(samples)], axis=1)
        if self.exponential:
            with np.errstate(over="ignore"):
                y, draws = np.exp(y), np.exp(draws)
        return Points(x, y, draws, fewest)


def swept(sweep: Sweep, panel: PanelTables, against: bool = False) -> dict[int, Points]:
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
    numbers = [sweep.quantity(arm).numbers(panel) for _, arm in members]
    seeds = set.intersection(*(set(one) for one in numbers))
    if len(seeds) < 2:
        raise UndecidableError(f"the arms of a sweep share {len(seeds)} of their seeds: two are needed for an interval")
    return {seed: Points(x, np.array([one[seed] for one in numbers])) for seed in sorted(seeds)}


def _rows(where: Mapping[str, Setting]) -> str:
    """Which rows are read, in words."""
    return "".join(f", {name} {value}" for name, value in where.items())


def _members(sweep: Sweep, panel: PanelTables, against: bool = False) -> str:
    """The family in words."""
    members = sweep.members(panel.name, panel.task.series, against)
    if sweep.over is None:
        return ", ".join(f"{panel.label(arm)} ({number:g})" for number, arm in members)
    where = ((sweep.against_where or {}) if against else sweep.where).items()
    family = (sweep.against_family or sweep.family) if against else sweep.family
    values = ", ".join(f"{number:g}" for number, _ in members)
    others = "".join(f", {axis} {value_text(value)}" for axis, value in where)
    return f"{f'{family}, ' if family else ''}{sweep.over} {values}{others}"


def _of(sweep: Sweep, panel: PanelTables) -> str:
    """What is read of every arm."""
    members = sweep.members(panel.name, panel.task.series)
    return sweep.quantity(members[0][1] if members else "each arm").words(panel)
