"""Figures: what one figure or table needs, at one scale, and the fully planned task that draws and judges it."""

from __future__ import annotations

from typing import Annotated, Any, ClassVar, Literal, Self

from pydantic import (
    Field,
    PositiveInt,
    StringConstraints,
    model_validator,
)

from ssm.base.errors import ConfigError, nearest
from ssm.claims.claim import ClaimSpec, JudgedFigure, claims_of_members
from ssm.claims.families import Member
from ssm.claims.reader import Reader
from ssm.claims.series import Names, Seeds
from ssm.figures.grid import AxisName, Grid, expanded
from ssm.figures.plots import PlotSpec
from ssm.specs.base import Distinct, Prose, Spec
from ssm.specs.measurements import SPECS as MEASUREMENTS
from ssm.specs.measurements import MeasurementEntry
from ssm.specs.measurements.base import ArmsEntry, OfNothing
from ssm.specs.repairs import RepairSpec
from ssm.specs.training import Layer

PUBLISHED = "published"  # an arm's checkpoint: that of its model in models.yaml
MOST_ARMS = 100  # of a figure: more are a mistake, and would be planned for minutes
ArmName = Annotated[str, StringConstraints(min_length=1, max_length=160)]
Texts = Annotated[tuple[Prose, ...], Field(strict=False), Distinct]


class ArmEntry(Spec):
    """One arm of a figure: how its runs are trained. `from` an arm: post-training of that arm's final weights.

    Or weights that are there already, or another arm's, repaired. At every scale one of `training`, `checkpoint`,
    `repair` and `snapshot_of` says which.
    """

    later: ClassVar[frozenset[str]] = frozenset({"checkpoint", "context", "layer", "repair", "data", "grid", "member"})
    label: str  # its name in pictures and tables
    training: str | None = None  # a recipe of config/training.yaml
    # published (the panel model's own), an entry of models.yaml, a name of the hub (owner/model@revision), or a path
    # with a /
    checkpoint: Annotated[str, Field(min_length=1)] | None = None
    context: PositiveInt | None = None  # T of a checkpoint; None: as models.yaml says
    parent: str | None = Field(default=None, alias="from")  # the arm whose final weights it starts from
    # From that arm single layers (counted from 1) in place of all weights: this one, as every layer of a fresh model;
    # "own": each layer the one of its number.
    layer: Layer | None = None
    repair: RepairSpec | None = None  # of that arm's weights, without training
    initial_state: str = "zero"  # a named initial state of config/training.yaml
    override: dict[str, Any] = {}  # training keys that differ from the recipe
    override_at: dict[str, dict[str, Any]] = {}  # and in the panels of these models, over `override`
    seeds: PositiveInt | None = None  # of the figure's seeds the first so many; None: all
    model: str | None = None  # a named model instead of the panel's
    data: str | None = None  # a named text or task instead of the figure's
    snapshot_of: str | None = None  # this arm is not trained: it is a snapshot of that arm ...
    at: float | None = None  # ... at this fraction of its steps
    grid: Grid | None = None  # this arm stands for many (ssm/figures/grid.py); None: it has the figure's grid, if any
    member: Member | None = None  # it is one of these

    @model_validator(mode="after")
    def _weights_come_from_one_place(self) -> ArmEntry:
        places = (self.training, self.checkpoint, self.repair, self.snapshot_of)
        if sum(place is not None for place in places) != 1:
            raise ValueError(
                "give one of 'training' (a recipe), 'checkpoint' (weights from elsewhere), 'repair' (without training) "
                "and 'snapshot_of' (an arm)"
            )
        if (self.snapshot_of is None) != (self.at is None):
            raise ValueError("'snapshot_of' and 'at' go together")
        if self.repair is not None and self.parent is None:
            raise ValueError("'repair' goes with 'from', the arm that is repaired")
        if self.layer is not None and self.parent is None:
            raise ValueError("'layer' goes with 'from', the arm whose layer it is")
        if self.checkpoint is None and self.context is not None:
            raise ValueError("'context' is that of a checkpoint; a recipe's is changed by 'override'")
        changes = {"initial_state": self.initial_state != "zero", "override": self.override}
        for name, given in (changes | {"override_at": self.override_at}).items():
            if self.repair is not None and given:
                raise ValueError(f"a repair is no training: it takes no '{name}'")
            if self.checkpoint is not None and given:
                raise ValueError(f"a checkpoint is not trained here: it takes no '{name}'")
        if self.checkpoint is not None and self.parent is not None:
            raise ValueError("a checkpoint is not trained here: it takes no 'from'")
        if self.repair is not None and (self.layer is not None or self.model is not None or self.data is not None):
            raise ValueError("a repair is of another arm's weights: it takes no 'layer', 'model' or 'data'")
        return self


class FigureSpec(Spec):
    """A figure file of config/figures, its scale chosen."""

    later: ClassVar[frozenset[str]] = frozenset({"grid", "value_labels"})
    target: Annotated[str, Field(pattern=r"^[a-z]+_[A-Za-z0-9]+$")]  # the name in the workflow, such as lg_fig5
    paper: Literal["lg", "ls", "bn", "mi", "x"]  # x: an added comparison, in no paper
    title: Prose
    caption: Prose  # what is drawn and how to read it
    setting: Prose  # the paper's own setting, in words
    headline: bool = False  # part of the default target
    models: Names = ()  # named models: a panel each
    data: str | None = None  # a named data set of config/data.yaml
    seeds: Seeds = ()
    grid: Grid | None = None  # of every arm that has none of its own; gone when the file is read, as theirs are
    # axis of a grid -> the label of each value in pictures and tables, or one text with {} for the value
    value_labels: dict[AxisName, str | dict[bool | int | float | str, str]] = {}
    # None: this arm does not exist at this scale
    arms: Annotated[dict[ArmName, ArmEntry | None], Field(max_length=MOST_ARMS)] = {}
    measurements: Annotated[tuple[MeasurementEntry, ...], Field(strict=False)] = ()
    collect: Names = ()  # targets whose measurements are drawn instead of runs of its own
    drawings: Annotated[tuple[PlotSpec, ...], Field(strict=False, min_length=1)]
    claims: Annotated[tuple[ClaimSpec, ...], Field(strict=False)] = ()
    deviations: Texts = ()  # how this scale departs from the paper, in plain words

    @classmethod
    def parse(cls, value: Any, source: str) -> Self:
        """As of any spec; members take the place of the arms that a grid is spanned over."""
        try:
            return super().parse(expanded(value, MOST_ARMS) if isinstance(value, dict) else value, source)
        except ValueError as error:
            raise ConfigError(f"{source}: {error}") from None

    @property
    def families(self) -> dict[str, dict[str, Member]]:
        """The name of each arm that had a grid -> its members, by name and in the grid's order."""
        members = [(name, arm.member) for name, arm in self.arms.items() if arm is not None and arm.member is not None]
        found: dict[str, dict[str, Member]] = {}
        for name, member in sorted(members, key=lambda pair: pair[1].number):
            found.setdefault(member.family, {})[name] = member
        return found

    @model_validator(mode="after")
    def _names_exist(self) -> FigureSpec:
        arms = [name for name, arm in self.arms.items() if arm is not None]
        for name in arms:
            arm = self.arms[name]
            assert arm is not None
            for field, other in (("from", arm.parent), ("snapshot_of", arm.snapshot_of)):
                if other is not None and (other not in arms or other == name):
                    raise ValueError(f"arms.{name}.{field}: unknown arm '{other}'; {nearest(other, arms)}")
            for model in arm.override_at:
                self._is_a_panel(model, f"arms.{name}.override_at")
        for name, arm in self.arms.items():
            if self.grid is not None or (arm is not None and arm.grid is not None):
                raise ValueError("a grid is spanned when a figure file is read")
            if arm is not None and arm.member is None and "[" in name:
                raise ValueError(f"arms.{name}: a name with '[' is that of a grid's member")
        if not self.collect:
            families = self.families
            gone: dict[str, dict[str, Member]] = {name: {} for name, arm in self.arms.items() if arm is None}
            for plot in self.drawings:
                try:
                    plot.check(gone | families, self.arms)
                except ValueError as error:
                    raise ValueError(f"drawings.{plot.kind}.{error}") from None
                for model in plot.panels():
                    self._is_a_panel(model, f"drawings.{plot.kind}.against")
            for claim in self.claims:
                for other in claim.quantity.arms():
                    if other not in self.arms and other not in families:
                        hint = nearest(other, [*arms, *families])
                        raise ValueError(f"claims.{claim.id}: unknown arm '{other}'; {hint}")
                try:
                    claim.quantity.check(gone | families, self.arms)
                    claims_of_members(claim, families)
                except ValueError as error:
                    raise ValueError(f"claims.{claim.id}.quantity.{error}") from None
                for model in claim.models or ():
                    self._is_a_panel(model, f"claims.{claim.id}.models")
                for model, _ in claim.quantity.panel_arms(panel=""):
                    if model:
                        self._is_a_panel(model, f"claims.{claim.id}.quantity.against_model")
        self._measurements_are_told_apart(arms)
        for claim in self.claims:
            self._is_measured(claim.quantity, f"claims.{claim.id}.quantity")
        for plot in self.drawings:
            self._is_measured(plot, f"drawings.{plot.kind}")
        ids = [claim.id for claim in self.claims]
        if len(set(ids)) != len(ids):
            raise ValueError("two claims bear the same id")
        if self.arms and not (self.models and self.data and self.seeds):
            raise ValueError("a figure with arms needs models, data and seeds")
        return self

    def _measurements_are_told_apart(self, arms: list[str]) -> None:
        kinds: dict[str, str] = {}
        alone: set[str] = set()
        for entry in self.measurements:
            where = f"measurements.{entry.called}"
            if not isinstance(entry, ArmsEntry):
                if entry.kind in alone and issubclass(MEASUREMENTS[entry.kind], OfNothing):
                    raise ValueError(f"{where}: is given twice, and has no name by which to tell its tables apart")
                alone.add(entry.kind)
                continue
            for other in entry.arms or ():
                if other not in self.arms:
                    raise ValueError(f"{where}.arms: unknown arm '{other}'; {nearest(other, arms)}")
            if entry.called in MEASUREMENTS and entry.called != entry.kind:
                raise ValueError(f"{where}: a {entry.kind} cannot bear the name of another kind")
            if kinds.setdefault(entry.called, entry.kind) != entry.kind:
                raise ValueError(f"{where}: is the name of a {kinds[entry.called]} and of a {entry.kind}")

    def _is_measured(self, reader: Reader, where: str) -> None:
        """Whether the measurements are there that it names; those that go without saying need not be."""
        named = [entry for entry in self.measurements if isinstance(entry, ArmsEntry) or reader.of_figure]
        there = {entry.called: entry.kind for entry in named}
        for field, (name, kind) in reader.named().items():
            if name not in there and not self.collect:
                raise ValueError(f"{where}.{field}: no measurement '{name}' in this figure; {nearest(name, there)}")
            if kind is not None and there.get(name, kind) != kind:
                raise ValueError(f"{where}.{field}: '{name}' is a {there[name]}, and a {kind} is read here")

    def _is_a_panel(self, model: str, where: str) -> None:
        if model not in self.models:
            raise ValueError(f"{where}: '{model}' is no panel of this figure; {nearest(model, self.models)}")


class FigureTask(JudgedFigure):
    """A figure fully planned: drawing and judging need this and the tables, nothing else."""

    figure: FigureSpec

    @property
    def target(self) -> str:
        return self.figure.target

    @property
    def models(self) -> tuple[str, ...]:
        return self.figure.models

    @property
    def claims(self) -> tuple[ClaimSpec, ...]:
        return self.figure.claims

    @property
    def families(self) -> dict[str, dict[str, Member]]:
        return self.figure.families

    @property
    def labels(self) -> dict[str, str]:
        return {name: arm.label for name, arm in self.figure.arms.items() if arm is not None}

    def member(self, arm: str) -> Member | None:
        entry = self.figure.arms.get(arm)
        return entry.member if entry is not None else None
