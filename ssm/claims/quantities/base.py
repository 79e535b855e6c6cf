"""How a quantity is computed from tables: once a seed of an arm, or of a named model as it is built."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Iterator
from typing import Generic, Literal, TypeVar

from ssm.base.lazy import polars as pl
from ssm.base.tables import read_table
from ssm.claims.estimate import Estimate, Reading, UndecidableError, summarize
from ssm.claims.panel import Panel, planned
from ssm.specs.figure import Series
from ssm.specs.measurements import SCHEMAS
from ssm.specs.quantities.base import ArmQuantity, FigureQuantity, ModelQuantity, Quantity, SeriesQuantity

ANY, POSITIVE = (-math.inf, math.inf), (0.0, math.inf)
Q = TypeVar("Q", bound=Quantity)
A = TypeVar("A", bound=SeriesQuantity)
F = TypeVar("F", bound=FigureQuantity)
M = TypeVar("M", bound=ModelQuantity)


class Estimator(ABC, Generic[Q]):
    """Computes a quantity of one panel of a figure."""

    def __init__(self, spec: Q):
        self.spec = spec

    @abstractmethod
    def estimate(self, panel: Panel) -> Estimate:
        """The quantity with its 95% interval.

        Raises:
            UndecidableError: the tables cannot give it at this scale.
            TableError: a planned table is missing or broken.
        """

    @abstractmethod
    def words(self, panel: Panel) -> str:
        """What is computed, in one line."""


class SeedEstimator(Estimator[Q]):
    """Reads a number a seed; the interval is over seeds, or over the sequences of the only one."""

    limits: tuple[float, float] = ANY  # of the number of one arm
    agreeing: bool = False  # seeds that all gave one number have an interval, by these limits

    @property
    @abstractmethod
    def logarithmic(self) -> bool:
        """Whether `readings` are logarithms."""

    @property
    @abstractmethod
    def compared(self) -> bool:
        """Whether `readings` are of one arm against another."""

    @abstractmethod
    def readings(self, panel: Panel) -> dict[int, Reading]:
        """Seed -> reading; where arms are compared, of the seeds that they share. Raises as `estimate`."""

    def estimate(self, panel: Panel) -> Estimate:
        low, high = self.limits
        limits = POSITIVE if self.logarithmic else (low - high, high - low) if self.compared else self.limits
        readings, words = self.readings(panel), self.words(panel)
        return summarize(readings, words, self.logarithmic, limits, self.agreeing, self.spec.rounding)


class SeriesEstimator(SeedEstimator[A]):
    """Reads a number once per arm and seed.

    With `against`, the two arms' readings of the same seed are subtracted, on the logarithmic scale where the quantity
    is positive, so that the estimate is a ratio of arms.
    """

    # plain: arms compare by their difference. logarithm: it is read as one, and arms compare as a ratio. ratio: it is
    # read plainly, but as a logarithm where two arms are compared.
    scale: Literal["plain", "logarithm", "ratio"] = "plain"

    @abstractmethod
    def read(self, panel: Panel, series: Series) -> Reading:
        """The number of one arm and seed: of the scale `logarithm`, its logarithm."""

    def read_logarithm(self, panel: Panel, series: Series) -> Reading:
        """The number's logarithm, of the scale `ratio`."""
        raise NotImplementedError

    @abstractmethod
    def describe(self, panel: Panel) -> str:
        """What is computed of the arm, in words."""

    @property
    def against(self) -> str | None:
        """The arm that the arm is compared with."""
        return self.spec.against if isinstance(self.spec, ArmQuantity) else None

    @property
    def compared(self) -> bool:
        return self.against is not None

    @property
    def logarithmic(self) -> bool:
        return self.scale == "logarithm" or (self.scale == "ratio" and self.compared)

    def readings(self, panel: Panel) -> dict[int, Reading]:
        read = self.read_logarithm if self.scale == "ratio" and self.compared else self.read
        found = {seed: read(panel, series) for seed, series in panel.series(self.spec.arm).items()}
        if self.against is None:
            return found
        assert isinstance(self.spec, ArmQuantity)
        there = panel.of(self.spec.there(panel.name))
        others = {seed: read(there, series) for seed, series in there.series(self.against).items()}
        shared = sorted(found.keys() & others.keys())
        if not shared:
            raise UndecidableError(f"the arms '{self.spec.arm}' and '{self.against}' share no seed")
        return {seed: found[seed] - others[seed] for seed in shared}

    def words(self, panel: Panel) -> str:
        text = self.describe(panel)
        if self.against is None:
            return text
        assert isinstance(self.spec, ArmQuantity)
        compared = "difference from" if self.scale == "plain" else "ratio to"
        model = f" of {self.spec.against_model}" if self.spec.against_model else ""
        return f"{text}; {compared} the same of {panel.label(self.against)}{model}"


class FigureEstimator(Estimator[F]):
    """Reads a number off the figure's own tables, which belong to no arm."""

    def tables(self, panel: Panel) -> Iterator[pl.DataFrame]:
        """Those of the kind that it reads."""
        (kind,) = self.spec.reads
        for table in panel.task.own_tables(kind):
            yield read_table(planned(panel.task, panel.folder, table), SCHEMAS[kind])

    def exact(self, value: float, panel: Panel) -> Estimate:
        """A number without chance in it."""
        return Estimate(value, value, value, "exact", self.words(panel))


class ModelEstimator(FigureEstimator[M]):
    """Reads a number off the table of named models."""

    def rows(self, panel: Panel) -> pl.DataFrame:
        """The model's rows.

        Raises:
            UndecidableError: the model is not in the tables.
        """
        for table in self.tables(panel):
            rows = table.filter(pl.col("model") == self.spec.model)
            if rows.height:
                return rows
        raise UndecidableError(f"{self.spec.model} is not among the models measured at the scale {panel.task.scale}")
