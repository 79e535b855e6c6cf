"""A planned figure as quantities and plots read it: its series and the ids of their tables."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Annotated, ClassVar

from pydantic import Field, NonNegativeInt, PositiveInt, model_validator

from ssm.claims.families import Member
from ssm.specs.base import Distinct, Name, Names, Setting, Spec, slug

MOST_SEEDS = 1000  # per figure; planning more would take minutes
Seeds = Annotated[tuple[NonNegativeInt, ...], Field(strict=False, max_length=MOST_SEEDS), Distinct]


class Series(Spec):
    """One arm of one panel and one seed, with the ids of its tables."""

    later: ClassVar[frozenset[str]] = frozenset({"family", "axes", "published"})
    arm: str
    label: str
    panel: str  # the model
    seed: int
    context: PositiveInt  # training context T of this arm
    policy: str
    run: str  # id of the run
    origin: str | None = None  # `RunSpec.start`: equal for arms that start from the same weights; None: the run's id
    published: str | None = None  # the published weights that training started from; None: it started here
    snapshot: float | None = None
    family: str | None = None  # the family of the arm, if a grid made it ...
    axes: dict[Name, Setting] = {}  # ... and its value, or the name of the value, on each axis of the grid
    tables: dict[str, str]  # name of a measurement in the figure (by default its kind) -> id of the table


class PlannedFigure(Spec, ABC):
    """A planned figure: its series, and the tables that belong to no arm."""

    later: ClassVar[frozenset[str]] = frozenset({"titles", "sizes"})
    scale: str
    titles: dict[str, str] = {}  # panel (model) -> its title without its size; panels of one size have different ones
    sizes: dict[str, str] = {}  # panel -> its number of parameters for readers, if it is equal in all arms
    series: Annotated[tuple[Series, ...], Field(strict=False)]
    tables: Names = ()  # ids of the tables that belong to no series, such as model_size
    # True: steps are capped, so the numbers mean nothing. Finished results have the alias as key, and its change would
    # make all pictures and verdicts again.
    dry_run: bool = Field(default=False, alias="rehearsal")

    @property
    @abstractmethod
    def target(self) -> str:
        """Name of the figure in the workflow."""

    @property
    @abstractmethod
    def models(self) -> tuple[str, ...]:
        """The models of the panels, in their order."""

    @property
    @abstractmethod
    def labels(self) -> Mapping[str, str]:
        """Arm -> its label."""

    @abstractmethod
    def member(self, arm: str) -> Member | None:
        """The arm as a member of a family; None: no grid made it."""

    @model_validator(mode="after")
    def _no_series_twice(self) -> PlannedFigure:
        """Reject duplicates: a seed that is given twice would count twice."""
        places = [(series.arm, series.panel, series.seed) for series in self.series]
        if len(set(places)) != len(places):
            raise ValueError("series: an arm of a panel is given twice with the same seed")
        return self

    def title_of(self, panel: str) -> str:
        """The title of a panel, with its number of parameters if that is equal in all arms."""
        title, size = self.titles.get(panel, panel), self.sizes.get(panel)
        return title if size is None else f"{title}, {size} parameters"

    def name_of(self, panel: str) -> str:
        """A short title of a panel: with a number of parameters only if another panel has the same title."""
        title, size = self.titles.get(panel, panel), self.sizes.get(panel)
        alone = list(self.titles.values()).count(title) < 2
        return title if alone or size is None else f"{title}, {size}"

    def own_tables(self, kind: str) -> tuple[str, ...]:
        """The ids of the figure's own tables of this kind, which belong to no arm."""
        return tuple(table for table in self.tables if table.rpartition("-")[0] == slug(kind))

    @property
    def table_ids(self) -> tuple[str, ...]:
        """The ids of all tables that the figure reads."""
        return tuple(sorted({table for series in self.series for table in series.tables.values()} | set(self.tables)))
