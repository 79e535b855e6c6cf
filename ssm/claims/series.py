"""What quantities and plots read of a planned figure: its series, and the tables that were planned for them."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Annotated, ClassVar

from pydantic import Field, PositiveInt, model_validator

from ssm.claims.families import Member
from ssm.specs.base import Distinct, Name, Setting, Spec, slug

MOST_SEEDS = 1000  # of a figure: more are a mistake, and would be planned for minutes
Names = Annotated[tuple[str, ...], Field(strict=False), Distinct]
Seeds = Annotated[tuple[int, ...], Field(strict=False, max_length=MOST_SEEDS), Distinct]  # one counts once


class Series(Spec):
    """One arm of one panel and one seed, with the tables that were planned for it."""

    later: ClassVar[frozenset[str]] = frozenset({"family", "axes", "published"})
    arm: str
    label: str
    panel: str  # the panel's named model
    seed: int
    context: PositiveInt  # T of this arm's training
    policy: str
    run: str  # the run's id
    origin: str | None = None  # RunSpec.start, alike for arms that start from the same weights; None: the run's id
    published: str | None = None  # the weights from elsewhere that it goes back to; None: all training was here
    snapshot: float | None = None
    family: str | None = None  # what the arm is a member of ...
    axes: dict[Name, Setting] = {}  # ... and its value, or the name of its value, on each axis of the grid
    tables: dict[str, str]  # a measurement's name in the figure, which is its kind unless another is given -> table id


class PlannedFigure(Spec, ABC):
    """A planned figure: its series, and its own tables."""

    later: ClassVar[frozenset[str]] = frozenset({"titles"})
    scale: str
    titles: dict[str, str] = {}  # panel (a named model) -> its title for readers
    series: Annotated[tuple[Series, ...], Field(strict=False)]
    tables: Names = ()  # tables that belong to no series (model_size)
    dry_run: bool = Field(default=False, alias="rehearsal")  # caps were applied: no number means anything

    @property
    @abstractmethod
    def target(self) -> str:
        """The figure's name in the workflow."""

    @property
    @abstractmethod
    def models(self) -> tuple[str, ...]:
        """The named models of its panels, in their order."""

    @property
    @abstractmethod
    def labels(self) -> Mapping[str, str]:
        """Arm -> its name for readers."""

    @abstractmethod
    def member(self, arm: str) -> Member | None:
        """What a grid has made of an arm; None: no grid has made it."""

    @model_validator(mode="after")
    def _no_series_twice(self) -> PlannedFigure:
        """A seed that stood twice would count as two."""
        places = [(series.arm, series.panel, series.seed) for series in self.series]
        if len(set(places)) != len(places):
            raise ValueError("series: an arm of a panel is given twice with the same seed")
        return self

    def title_of(self, panel: str) -> str:
        """The title of a panel for readers."""
        return self.titles.get(panel, panel)

    def own_tables(self, kind: str) -> tuple[str, ...]:
        """The ids of its own tables of this kind, which belong to no arm."""
        return tuple(table for table in self.tables if table.rpartition("-")[0] == slug(kind))

    @property
    def table_ids(self) -> tuple[str, ...]:
        """Every table that the figure reads."""
        return tuple(sorted({table for series in self.series for table in series.tables.values()} | set(self.tables)))
