"""Quantities: the numbers that test claims. A quantity is a spec with methods that read it from tables.

Each quantity is one file in ssm/claims/quantities, named after its kind.
"""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from typing import Annotated, Any, ClassVar, Literal, Self

from pydantic import Field, model_validator

from ssm.base.discovery import Registry
from ssm.base.lazy import polars as pl
from ssm.base.tables import read_table
from ssm.claims.estimate import Estimate, Reading, UndecidableError, numbers_of, summarize
from ssm.claims.method import EXACT, Method
from ssm.claims.panel_tables import PanelTables, existing_table
from ssm.claims.reader import Reader, SeriesReader
from ssm.claims.series import Series
from ssm.specs.base import PluginSpec, Spec
from ssm.specs.measurements import SCHEMAS
from ssm.specs.measurements.base import Measurement

PanelArm = tuple[str, str]  # a panel (model), and an arm of it
# How arms are compared. plain: by their difference. logarithm: readings are logarithms; by their ratio. ratio: one arm
# is read plainly; two arms are compared by their ratio.
ComparisonScale = Literal["plain", "logarithm", "ratio"]
Limits = Annotated[tuple[float, float], Field(strict=False)]
ROUNDING = 1e-12  # bound on the rounding error of sums of thousands of float64 numbers of order 1
ANY, POSITIVE = (-math.inf, math.inf), (0.0, math.inf)

QUANTITIES: Registry[type[Quantity]] = Registry("ssm.claims.quantities")


class Quantity(Reader, PluginSpec):
    """A number with its interval, which tests a claim."""

    registry: ClassVar[Registry[Any]] = QUANTITIES
    definition: ClassVar[bool] = False  # true: a property of what was built; nothing random is involved

    @property
    def timed(self) -> bool:
        """Whether it is measured in time, which differs from run to run and from machine to machine."""
        return False

    @property
    def rounding(self) -> float:
        """Largest effect of rounding on the number, in its unit. A number this close to 0 counts as 0.

        The default is right for numbers of order 1 or larger: ratios, shares, exponents, nats, tokens.
        """
        return ROUNDING

    @abstractmethod
    def arms(self) -> tuple[str, ...]:
        """The arms that it names, the main one first."""

    def about(self, series: Series) -> bool:
        """Whether the quantity is judged on the panel of this series."""
        return series.arm in self.arms()[:1]

    @abstractmethod
    def panel_arms(self, panel: str, series: Sequence[Series] = ()) -> tuple[PanelArm, ...]:
        """The (panel, arm) pairs that it reads when `panel` is judged, each once.

        Args:
            series: all series of the figure. They are needed only if it names arms by the axes of a grid.
        """

    @abstractmethod
    def canonical(self, panel: str, series: Sequence[Series] = ()) -> dict[str, Any]:
        """Content without names: arms are indices into `panel_arms`; measurements and models have no name."""

    @abstractmethod
    def estimate(self, panel: PanelTables) -> Estimate:
        """The number with its 95% interval.

        Raises:
            UndecidableError: the tables do not determine the number at this scale.
            TableError: a planned table is missing or broken.
        """

    @abstractmethod
    def words(self, panel: PanelTables) -> str:
        """What is computed, in one line of text."""


class SeedQuantity(Quantity):
    """One number per seed. The interval is over seeds, or over the sequences of a single seed."""

    agreeing: ClassVar[bool] = False  # true: equal numbers of all seeds have an interval, from `bounds`

    @property
    def bounds(self) -> tuple[float, float]:
        """Smallest and largest possible number of one arm."""
        return ANY

    @property
    def of_two_kinds(self) -> bool:
        """Whether some seeds may solve a task and others not. The interval then assumes the `bounds` and no more."""
        return False

    @property
    def logarithmic(self) -> bool:
        """Whether `readings` are logarithms."""
        return False

    @property
    def compared(self) -> bool:
        """Whether `readings` compare one arm with another."""
        return False

    @abstractmethod
    def readings(self, panel: PanelTables) -> dict[int, Reading]:
        """Seed -> reading. If arms are compared: for the seeds that they share. Raises as `estimate`."""

    @property
    def possible(self) -> tuple[float, float]:
        """Smallest and largest possible number, of one arm or of a comparison."""
        low, high = self.bounds
        return POSITIVE if self.logarithmic else (low - high, high - low) if self.compared else (low, high)

    def estimate(self, panel: PanelTables) -> Estimate:
        readings, words = self.readings(panel), self.words(panel)
        return summarize(
            readings, words, self.logarithmic, self.possible, self.agreeing, self.rounding, two_kinds=self.of_two_kinds
        )

    def numbers(self, panel: PanelTables) -> dict[int, float]:
        """Seed -> number. Raises as `estimate`."""
        return numbers_of(self.readings(panel), self.logarithmic)


class LimitedQuantity(SeedQuantity):
    """One number per seed, whose limits may be known."""

    later: ClassVar[frozenset[str]] = frozenset({"two_kinds"})
    limits: Limits | None = None  # smallest and largest possible value of the column, such as [0, 1]
    # true: some seeds solve the task and others do not, so that a Student t interval is too short. The interval then
    # assumes nothing but the limits
    two_kinds: bool = False

    @model_validator(mode="after")
    def _two_kinds_between_limits(self) -> Self:
        if self.limits is not None and self.limits[0] >= self.limits[1]:
            raise ValueError(f"'limits' must ascend, got {self.limits[0]:g} and {self.limits[1]:g}")
        if self.two_kinds and (self.limits is None or self.logarithmic):
            raise ValueError("'two_kinds' needs 'limits', and compares arms by their difference (scale: plain)")
        return self

    @property
    def bounds(self) -> tuple[float, float]:
        return self.limits or ANY

    @property
    def of_two_kinds(self) -> bool:
        return self.two_kinds


class SeriesQuantity(SeriesReader, SeedQuantity):
    """One number per seed of one arm."""

    arm: str  # the arm that is measured, or a family of arms (one claim for each member)

    def arms(self) -> tuple[str, ...]:
        return (self.arm,)

    def panel_arms(self, panel: str, series: Sequence[Series] = ()) -> tuple[PanelArm, ...]:
        return ((panel, self.arm),)

    def canonical(self, panel: str, series: Sequence[Series] = ()) -> dict[str, Any]:
        content = {key: value for key, value in self.content().items() if key not in self.measurement_fields()}
        return content | {"arm": 0}  # its index in `panel_arms`

    @abstractmethod
    def read(self, panel: PanelTables, series: Series) -> Reading:
        """The number of one arm and seed; its logarithm on the scale `logarithm`."""

    @abstractmethod
    def describe(self, panel: PanelTables) -> str:
        """What is computed of the arm, as text."""

    def readings(self, panel: PanelTables) -> dict[int, Reading]:
        return {seed: self.read(panel, series) for seed, series in panel.series(self.arm).items()}

    def words(self, panel: PanelTables) -> str:
        return self.describe(panel)


class ComparedQuantity(SeedQuantity):
    """One number per seed; with `against`, compared with the number of another arm.

    By default both arms belong to the judged panel; `against_model` names another panel for the second arm. Readings
    of the same seed are subtracted. On the logarithmic scale the estimate is a ratio of arms, otherwise a difference.
    """

    against: str | None = None  # another arm: the number is compared with that arm's number
    against_model: str | None = None  # the model (panel) of the arm `against`; none: the judged panel

    @model_validator(mode="after")
    def _a_model_of_an_arm(self) -> Self:
        if self.against_model is not None and self.against is None:
            raise ValueError("'against_model' needs 'against', the arm of that model")
        return self

    @property
    def compared(self) -> bool:
        return self.against is not None

    @abstractmethod
    def is_trivial(self, panel: str) -> bool:
        """Whether a number is compared with itself, if `panel` is judged."""

    def against_panel(self, panel: str) -> str:
        """The panel of the arm `against`."""
        return self.against_model or panel

    def against_places(self, panel: str) -> tuple[PanelArm, ...]:
        """The place of the arm `against`; empty without it."""
        return () if self.against is None else ((self.against_panel(panel), self.against),)

    def against_words(self, panel: PanelTables) -> str:
        """The arm `against`, as text; empty without it."""
        if self.against is None:
            return ""
        model = f" of {panel.task.title_of(self.against_model)}" if self.against_model else ""
        return f"{panel.label(self.against)}{model}"


def differences(these: Mapping[int, Reading], those: Mapping[int, Reading], what: str) -> dict[int, Reading]:
    """Seed -> difference of readings, for the seeds that both have.

    Args:
        what: what is compared, as text in the plural.

    Raises:
        UndecidableError: they share no seed.
    """
    seeds = sorted(these.keys() & those.keys())
    if not seeds:
        raise UndecidableError(f"{what} share no seed")
    return {seed: these[seed] - those[seed] for seed in seeds}


class ArmQuantity(ComparedQuantity, SeriesQuantity):
    """One number per seed of one arm; with `against`, compared with the number of another arm."""

    def places(self, panel: str) -> tuple[PanelArm, ...]:
        """The places of the numbers that are read or compared, each once: of `arm` and `against`."""
        return tuple(dict.fromkeys(((panel, self.arm), *self.against_places(panel))))

    def is_trivial(self, panel: str) -> bool:
        return self.against is not None and len(self.places(panel)) == 1

    def arms(self) -> tuple[str, ...]:
        return (self.arm,) if self.against is None else (self.arm, self.against)

    def reads_at(self, panel: str) -> tuple[tuple[PanelArm, PanelArm, str], ...]:
        """(a place with a number, the place of a table that the number needs, name of the measurement)."""
        return tuple((place, place, name) for place in self.places(panel) for name in self.own_measurement_names)

    def why_not_in(self, measurement: Measurement, series: Series) -> str | None:
        """Why the number of a series is not in the table of this measurement: "key: reason". None: it may be there."""
        return None

    def panel_arms(self, panel: str, series: Sequence[Series] = ()) -> tuple[PanelArm, ...]:
        return self.places(panel)

    def canonical(self, panel: str, series: Sequence[Series] = ()) -> dict[str, Any]:
        content = super().canonical(panel)
        del content["against_model"]
        if self.against is not None:
            content["against"] = self.panel_arms(panel).index((self.against_panel(panel), self.against))
        return content

    @property
    def read_on(self) -> ComparisonScale:
        """The scale on which arms are compared."""
        return "plain"

    @property
    def logarithmic(self) -> bool:
        return self.read_on == "logarithm" or (self.read_on == "ratio" and self.compared)

    def read_logarithm(self, panel: PanelTables, series: Series) -> Reading:
        """The logarithm of the number; needed on the scale `ratio`."""
        raise NotImplementedError

    def readings(self, panel: PanelTables) -> dict[int, Reading]:
        if self.against is None:
            return super().readings(panel)
        read = self.read_logarithm if self.read_on == "ratio" else self.read
        found = {seed: read(panel, series) for seed, series in panel.series(self.arm).items()}
        there = panel.of(self.against_panel(panel.name))
        others = {seed: read(there, series) for seed, series in there.series(self.against).items()}
        return differences(found, others, f"the arms '{self.arm}' and '{self.against}'")

    def words(self, panel: PanelTables) -> str:
        text = self.describe(panel)
        if self.against is None:
            return text
        compared = "minus" if self.read_on == "plain" else "divided by"
        return f"{text}; {compared} the same for {self.against_words(panel)}"


class FigureQuantity(Quantity):
    """A number from the figure's own tables, which belong to no arm."""

    def arms(self) -> tuple[str, ...]:
        return ()

    def panel_arms(self, panel: str, series: Sequence[Series] = ()) -> tuple[PanelArm, ...]:
        return ()

    def canonical(self, panel: str, series: Sequence[Series] = ()) -> dict[str, Any]:
        return self.content()

    @abstractmethod
    def decided_by(self, measured: Sequence[Spec]) -> tuple[list[Any], list[Any]]:
        """What determines the number, as plain data without names: (what is measured, how it is measured).

        Args:
            measured: the figure's own measurements of the kinds that the quantity reads.
        """

    def tables(self, panel: PanelTables) -> Iterator[pl.DataFrame]:
        """The figure's tables of the kind that it reads."""
        (kind,) = self.reads
        for table in panel.task.own_tables(kind):
            yield read_table(existing_table(panel.task, panel.folder, table), SCHEMAS[kind])

    def exact(self, value: float, panel: PanelTables) -> Estimate:
        """An estimate that involves nothing random."""
        return Estimate(value, value, value, Method(EXACT), self.words(panel))


class ModelQuantity(FigureQuantity):
    """A number of one model as it is built, without training."""

    model: str  # name of the model in config/models.yaml

    def canonical(self, panel: str, series: Sequence[Series] = ()) -> dict[str, Any]:
        return {key: value for key, value in self.content().items() if key != "model"}

    def decided_by(self, measured: Sequence[Spec]) -> tuple[list[Any], list[Any]]:
        contents = [one.content() for one in measured]
        models = [one for content in contents for one in content["models"] if one["name"] == self.model]
        what = [{key: value for key, value in one.items() if key != "name"} for one in models]
        return what, [{key: value for key, value in content.items() if key != "models"} for content in contents]

    def rows(self, panel: PanelTables) -> pl.DataFrame:
        """The rows of the model.

        Raises:
            UndecidableError: the tables do not have the model.
        """
        for table in self.tables(panel):
            rows = table.filter(pl.col("model") == self.model)
            if rows.height:
                return rows
        model = panel.task.title_of(self.model)
        raise UndecidableError(f"{model} is not among the measured models at the scale {panel.task.scale}")
