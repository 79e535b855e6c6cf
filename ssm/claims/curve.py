"""Quantities of curves: over a family of arms, or along a column of one arm's table."""

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
from ssm.claims.families import Member, joined_labels, place_words, value_text
from ssm.claims.panel_tables import PanelTables
from ssm.claims.quantity import ComparedQuantity, PanelArm, differences
from ssm.claims.reader import Reader
from ssm.claims.series import Series
from ssm.claims.sweep import Sweep
from ssm.specs.base import Name, Setting


@dataclass(frozen=True)
class Points:
    """The curve of one seed, with bootstrap draws if it comes from one table."""

    x: np.ndarray  # (K,) ascending
    y: np.ndarray  # (K,)
    draws: np.ndarray = field(default_factory=lambda: NOTHING)  # (DRAWS, K)
    sequences: int = 0  # in the table; 0: the points come from several tables


class CurveQuantity(ComparedQuantity):
    """A number that is computed from a curve.

    The curve is either a `sweep` (a quantity at arms that differ by a number), or a column of one arm's table. For a
    column, give `arm`, `measurement`, `x` and `column`. With `against`, the number is compared with another arm's.
    """

    reads: ClassVar[tuple[str, ...]] = ()  # any measurement
    later: ClassVar[frozenset[str]] = frozenset({"between", "against_where"})
    fewest: ClassVar[int] = 2  # points that the number needs
    sweep: Sweep | None = None  # a quantity at arms that differ by a number; replaces the keys of a column
    arm: str | None = None  # the arm whose column is read
    measurement: Name | None = None  # name of the measurement that is read
    x: Name | None = None  # column on the horizontal axis
    column: Name | None = None  # column on the vertical axis
    where: dict[Name, Setting] = {}  # read only rows with these values, such as {layer: 2}
    against_where: dict[Name, Setting] | None = None  # the same for the arm `against`; none: as `where`
    # read only points with x from the first to the second value, both included; none: all points
    between: Annotated[tuple[float, float], Field(strict=False)] | None = None
    exponential: bool = False  # true: use the exponential of the column, such as the perplexity of a loss in nats

    @model_validator(mode="after")
    def _one_curve(self) -> Self:
        of_arm = (self.arm, self.measurement, self.x, self.column)
        if self.sweep is None and None in of_arm:
            raise ValueError("give either 'sweep', or all of 'arm', 'measurement', 'x' and 'column'")
        chosen = (self.where or None, self.against_where, self.between, self.exponential or None)
        others = (*of_arm, self.against, self.against_model, *chosen)
        if self.sweep is not None and any(one is not None for one in others):
            raise ValueError("a 'sweep' already says what is read and of which arms; leave the keys of a column out")
        if self.against_where is not None and self.against is None:
            raise ValueError("'against_where' needs 'against', the arm whose rows it chooses")
        if self.between is not None and self.between[0] >= self.between[1]:
            raise ValueError(f"'between' must ascend, got {self.between[0]:g} and {self.between[1]:g}")
        return self

    @property
    def compared(self) -> bool:
        return super().compared or (self.sweep is not None and self.sweep.compared)

    def is_trivial(self, panel: str) -> bool:
        same_rows = self.against_where in (None, self.where)
        return self.against is not None and same_rows and len(self.panel_arms(panel)) == 1

    @property
    def measurement_names(self) -> tuple[str, ...]:
        return self.sweep.quantity().measurement_names if self.sweep is not None else (str(self.measurement),)

    def nested_readers(self) -> dict[str, Reader]:
        return {} if self.sweep is None else {"sweep.of": self.sweep.quantity()}

    def named_measurements(self) -> dict[str, tuple[str, str | None]]:
        return (
            super().named_measurements() if self.sweep is not None else {"measurement": (str(self.measurement), None)}
        )

    def named_columns(self) -> dict[str, tuple[str, str]]:
        if self.sweep is not None:
            return super().named_columns()
        given = {"x": self.x, "column": self.column} | {f"where.{key}": key for key in self.where}
        given |= {f"against_where.{key}": key for key in self.against_where or {}}
        return {field: (str(self.measurement), str(column)) for field, column in given.items()}

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
        return tuple(dict.fromkeys(((panel, str(self.arm)), *self.against_places(panel))))

    def canonical(self, panel: str, series: Sequence[Series] = ()) -> dict[str, Any]:
        curve = {"sweep", "arm", "against", "against_model", "measurement"}
        content = {key: value for key, value in self.content().items() if key not in curve}
        if self.sweep is not None:
            return content | {"sweep": self.sweep.canonical(panel, series)}
        order = self.panel_arms(panel, series)
        other = None if self.against is None else order.index((self.against_panel(panel), self.against))
        return content | {"arm": 0, "against": other}

    @abstractmethod
    def number(self, x: np.ndarray, y: np.ndarray) -> np.ndarray:
        """The number of each of R curves, or its logarithm if `logarithmic`. (K,), (R, K) -> (R,); NaN: undefined."""

    @abstractmethod
    def describe_number(self) -> str:
        """What is computed, as text."""

    def missing(self, points: Points) -> str:
        """Why a curve has no number, as text."""
        return f"the points from x = {points.x[0]:g} to {points.x[-1]:g} give no finite number"

    def readings(self, panel: PanelTables) -> dict[int, Reading]:
        own = self.points(panel)
        if not self.compared:
            return self._read(own)
        others = self.points(panel, against=True)
        self.require_comparable(own, others)
        return differences(self._read(own), self._read(others), "the two curves")

    def require_comparable(self, own: Mapping[int, Points], others: Mapping[int, Points]) -> None:
        """Raise UndecidableError if the curves of two arms, by seed, cannot be compared."""

    def points(self, panel: PanelTables, against: bool = False) -> dict[int, Points]:
        """Seed -> curve; with `against`, the curve that it is compared with."""
        if self.sweep is not None:
            return sweep_points(self.sweep, panel, against)
        arm = self.against if against else self.arm
        there = panel.of(self.against_panel(panel.name)) if against else panel
        where = self.against_where if against and self.against_where is not None else self.where
        return {seed: self._column(there, series, where) for seed, series in there.series(str(arm)).items()}

    def words(self, panel: PanelTables) -> str:
        if self.sweep is None:
            column = f"exponential of {self.column}" if self.exponential else self.column
            where = _rows(self.where)
            if self.between is not None:
                where += f", {self.x} {self.between[0]:g} to {self.between[1]:g}"
            curve = f"{column} by {self.x} for {panel.label(str(self.arm))} in {self.measurement}{where}"
            other = f"{self.against_words(panel)}{_rows(self.against_where or {})}"
        else:
            curve = f"{self.sweep.quantity('each arm').words(panel)}, over {_members(self.sweep, panel)}"
            other = _members(self.sweep, panel, against=True) if self.sweep.compared else ""
        text = f"{self.describe_number()}: {curve}"
        compared = "divided by" if self.logarithmic else "minus"
        return f"{text}; {compared} the same for {other}" if other else text

    def _read(self, curves: dict[int, Points]) -> dict[int, Reading]:
        found = {}
        for seed, points in curves.items():
            value = float(self.number(points.x, points.y[None])[0])
            draws = self.number(points.x, points.draws) if len(points.draws) else NOTHING
            resampled = len(curves) > 1 or np.isfinite(draws).all()  # an interval over seeds needs no draws
            if np.isfinite(points.y).all() and not (math.isfinite(value) and resampled):
                raise UndecidableError(f"seed {seed}: {self.missing(points)}")
            found[seed] = Reading(value, draws=draws, sequences=points.sequences)
        return found

    def _column(self, panel: PanelTables, series: Series, where: Mapping[str, Setting]) -> Points:
        table, schema = panel.any_table(series, str(self.measurement))
        return self.points_of(panel.rows(table, schema, where), schema, series, panel)

    def points_of(self, rows: pl.DataFrame, schema: Schema, series: Series, panel: PanelTables) -> Points:
        """The curve from selected rows of one seed's table.

        Raises:
            UndecidableError: there are fewer points than the number needs.
        """
        x, samples = matrices(rows, schema, str(self.x), str(self.column))
        if self.between is not None:
            inside = (self.between[0] <= x) & (x <= self.between[1])
            apart = len(samples) == len(x)
            x, samples = x[inside], [samples[i] for i in np.flatnonzero(inside)] if apart else [samples[0][:, inside]]
        if len(x) < self.fewest:
            too_few = f"{self.measurement} of '{series.arm}' has too few values of {self.x} at this scale"
            raise UndecidableError(f"{too_few}: {len(x)}; {self.fewest} are needed")
        y = np.concatenate([one.mean(axis=0) for one in samples])
        fewest = min(len(one) for one in samples)
        draws = NOTHING
        if fewest > 1:
            draws = np.concatenate([resample(one, stream=place)[0] for place, one in enumerate(samples)], axis=1)
        if self.exponential:
            with np.errstate(over="ignore"):
                y, draws = np.exp(y), np.exp(draws)
        return Points(x, y, draws, fewest)


def sweep_points(sweep: Sweep, panel: PanelTables, against: bool = False) -> dict[int, Points]:
    """Seed -> curve over a family of arms, for the seeds that all arms share.

    Raises:
        UndecidableError: the family has fewer than two arms at this scale, two of its arms have the same number, or
            its arms share fewer than two seeds.
        TableError: a planned table is missing or broken.
    """
    members = sweep.members(panel.name, panel.task.series, against)
    x = np.array([number for number, _ in members])
    if len(x) < 2 or len(np.unique(x)) < len(x):
        found = ", ".join(f"{arm} ({number:g})" for number, arm in members) or "none"
        raise UndecidableError(f"a sweep needs two or more arms with different numbers; at this scale: {found}")
    numbers = [sweep.quantity(arm).numbers(panel) for _, arm in members]
    seeds = set.intersection(*(set(one) for one in numbers))
    if len(seeds) < 2:
        raise UndecidableError(f"the arms share too few seeds: {len(seeds)}; an interval needs 2")
    return {seed: Points(x, np.array([one[seed] for one in numbers])) for seed in sorted(seeds)}


def _rows(where: Mapping[str, Setting]) -> str:
    """The selected rows, as text."""
    return "".join(f", {name} {value}" for name, value in where.items())


def _members(sweep: Sweep, panel: PanelTables, against: bool = False) -> str:
    """The family, as text."""
    members = sweep.members(panel.name, panel.task.series, against)
    if sweep.over is None:
        return ", ".join(f"{panel.label(arm)} ({number:g})" for number, arm in members)
    family, where = sweep.selection(against)
    places = [(number, member) for number, arm in members if (member := panel.task.member(arm)) is not None]
    labels = [(number, member.label_of(sweep.over)) for number, member in places]
    if any(label for _, label in labels):
        words = [joined_labels([label or place_words(sweep.over, number) for number, label in labels])]
    else:
        words = [f"{sweep.over} {', '.join(f'{number:g}' for number, _ in members)}"]
    for axis, value in where.items():  # the same for all members
        label = places[0][1].label_of(axis) if places else None
        words.append(f"{axis} {value_text(value)}" if label is None else label)
    return ", ".join(text for text in [family or "", *words] if text)
