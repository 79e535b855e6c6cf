"""Figure files as specs, and planned figures, which can be drawn and judged from tables."""

from __future__ import annotations

from typing import Annotated, Any, ClassVar, Literal, Self

from pydantic import (
    Field,
    PositiveInt,
    StringConstraints,
    model_validator,
)

from ssm.base.columns import is_key
from ssm.base.errors import ConfigError, nearest
from ssm.claims.claim import ClaimSpec, JudgedFigure, claims_of_members
from ssm.claims.families import Member
from ssm.claims.reader import Reader
from ssm.claims.series import Seeds
from ssm.claims.statements import paper_of
from ssm.figures.grid import AxisName, Grid, expanded
from ssm.figures.plots import PlotSpec
from ssm.specs.base import Distinct, Names, Prose, Spec, given_twice
from ssm.specs.measurements import SPECS as MEASUREMENTS
from ssm.specs.measurements import MeasurementEntry
from ssm.specs.measurements.base import ArmsEntry, OfNothing
from ssm.specs.repairs import RepairSpec
from ssm.specs.training import Layer

BINNED = ("x", "by", "along")  # fields that may name bins: `position` for position_from and position_to
PUBLISHED = "published"  # as `checkpoint` of an arm: the checkpoint of its model in models.yaml
TARGET = r"^[a-z]+_[A-Za-z0-9]+$"  # names of figures
MOST_ARMS = 100  # per figure; planning more would take minutes
ArmName = Annotated[str, StringConstraints(min_length=1, max_length=160)]
Texts = Annotated[tuple[Prose, ...], Field(strict=False), Distinct]


class ArmEntry(Spec):
    """One arm of a figure: where its weights come from.

    Every arm has exactly one of `training`, `checkpoint`, `repair` and `snapshot_of`. With `from` and `training`, the
    final weights of another arm are trained further.
    """

    later: ClassVar[frozenset[str]] = frozenset({"checkpoint", "context", "layer", "repair", "data", "grid", "member"})
    label: Annotated[str, Field(min_length=1)]  # label in pictures and tables; no two arms of a figure have the same
    training: str | None = None  # a recipe of config/training.yaml
    # `published` (the weights of the panel's model), an entry of models.yaml, a name on the hub (owner/model@revision),
    # or a path with a /
    checkpoint: Annotated[str, Field(min_length=1)] | None = None
    context: PositiveInt | None = None  # training context T of the checkpoint, tokens; none: from models.yaml
    parent: str | None = Field(default=None, alias="from")  # start from the final weights of this arm
    # take single layers of the arm `from` instead of all weights. A number (from 1): copy that layer into every layer
    # of a new model. `own`: copy each layer to the same place
    layer: Layer | None = None
    repair: RepairSpec | None = None  # a repair of the weights of the arm `from`, without training
    initial_state: str = "zero"  # name of an initial state in config/training.yaml
    override: dict[str, Any] = {}  # training keys that differ from the recipe
    override_at: dict[str, dict[str, Any]] = {}  # the same for single models (panels); it has priority over `override`
    seeds: PositiveInt | None = None  # use only this number of the figure's seeds; none: all
    model: str | None = None  # a model that replaces the panel's model
    data: str | None = None  # a text or task that replaces the figure's
    snapshot_of: str | None = None  # do not train: use the weights of this arm during its training ...
    at: Annotated[float, Field(gt=0, lt=1)] | None = None  # ... after this fraction of its steps
    grid: Grid | None = None  # make this arm a family: one member for each combination of values; none: the figure's
    member: Member | None = None  # its place in a family

    @model_validator(mode="after")
    def _weights_come_from_one_place(self) -> ArmEntry:
        places = (self.training, self.checkpoint, self.repair, self.snapshot_of)
        if sum(place is not None for place in places) != 1:
            raise ValueError(
                "give exactly one of 'training' (a recipe), 'checkpoint' (existing weights), 'repair' (no training) "
                "and 'snapshot_of' (an arm)"
            )
        if (self.snapshot_of is None) != (self.at is None):
            raise ValueError("'snapshot_of' and 'at' must be given together")
        if self.repair is not None and self.parent is None:
            raise ValueError("'repair' needs 'from', the arm that is repaired")
        if self.layer is not None and self.parent is None:
            raise ValueError("'layer' needs 'from', the arm whose layer is copied")
        if self.checkpoint is None and self.context is not None:
            raise ValueError("'context' needs 'checkpoint'; to change the context of a recipe, use 'override'")
        changes = {"initial_state": self.initial_state != "zero", "override": self.override}
        for name, given in (changes | {"override_at": self.override_at}).items():
            if self.repair is not None and given:
                raise ValueError(f"a repair is not trained: leave '{name}' out")
            if self.checkpoint is not None and given:
                raise ValueError(f"a checkpoint is not trained here: leave '{name}' out")
        if self.checkpoint is not None and self.parent is not None:
            raise ValueError("a checkpoint is not trained here: leave 'from' out")
        if self.repair is not None and (self.layer is not None or self.model is not None or self.data is not None):
            raise ValueError("a repair changes the weights of another arm: leave 'layer', 'model' and 'data' out")
        return self


class FigureSpec(Spec):
    """A figure file of config/figures at one scale."""

    later: ClassVar[frozenset[str]] = frozenset({"grid", "value_labels"})
    target: Annotated[str, Field(pattern=TARGET)]  # name in the workflow, such as lg_fig5
    paper: Literal["lg", "ls", "bn", "mi", "x"]  # the paper; x: an added comparison
    title: Prose  # title of the figure
    caption: Prose  # what is drawn, and how to read it
    setting: Prose  # the paper's own setting, in words
    headline: bool = False  # true: `make figures` makes it
    models: Names = ()  # models of config/models.yaml, one panel each
    data: str | None = None  # a text or task of config/data.yaml
    seeds: Seeds = ()  # random seeds of the runs
    grid: Grid | None = None  # the grid of every arm that has no grid of its own
    # axis of a grid -> the label of each value in pictures and tables, or one text with {} in place of the value
    value_labels: dict[AxisName, str | dict[bool | int | float | str, str]] = {}
    # name -> arm; none: the arm does not exist at this scale
    arms: Annotated[dict[ArmName, ArmEntry | None], Field(max_length=MOST_ARMS)] = {}
    measurements: Annotated[tuple[MeasurementEntry, ...], Field(strict=False)] = ()  # what is measured on the arms
    collect: Names = ()  # draw the measurements of these figures instead of own runs
    drawings: Annotated[tuple[PlotSpec, ...], Field(strict=False, min_length=1)]  # the plots, from top to bottom
    claims: Annotated[tuple[ClaimSpec, ...], Field(strict=False)] = ()  # statements that are tested
    deviations: Texts = ()  # differences between this scale and the paper, in words

    @classmethod
    def parse(cls, value: Any, source: str) -> Self:
        """Parse as any spec, with the members of a grid in place of the arm that has the grid."""
        try:
            return super().parse(expanded(value, MOST_ARMS) if isinstance(value, dict) else value, source)
        except ValueError as error:
            raise ConfigError(f"{source}: {error}") from None

    @property
    def families(self) -> dict[str, dict[str, Member]]:
        """Name of each arm with a grid -> its members by name, in the order of the grid."""
        members = [(name, arm.member) for name, arm in self.arms.items() if arm is not None and arm.member is not None]
        found: dict[str, dict[str, Member]] = {}
        for name, member in sorted(members, key=lambda pair: pair[1].number):
            found.setdefault(member.family, {})[name] = member
        return found

    @property
    def _present(self) -> dict[str, ArmEntry]:
        """The arms that exist at this scale."""
        return {name: arm for name, arm in self.arms.items() if arm is not None}

    @property
    def _members(self) -> dict[str, dict[str, Member]]:
        """As `families`; an arm that does not exist at this scale counts as a family without members."""
        return {name: {} for name, arm in self.arms.items() if arm is None} | self.families

    @model_validator(mode="after")
    def _check(self) -> FigureSpec:
        if paper_of(self.target) != self.paper:  # reports find the figures of a paper by their targets
            raise ValueError(
                f"paper: a file of the paper '{self.paper}' needs a name that begins with it, such as "
                f"{self.paper}_mine.yaml"
            )
        self._check_arms()
        self._check_grids_are_expanded()
        if not self.collect:
            self._check_drawings()
            self._check_claims()
        self._check_measurement_names()
        for claim in self.claims:
            self._check_is_measured(claim.quantity, f"claims.{claim.id}.quantity")
        for plot in self.drawings:
            self._check_is_measured(plot, f"drawings.{plot.kind}")
        self._check_claim_ids()
        if self.arms and not (self.models and self.data and self.seeds):
            raise ValueError("a figure with arms needs 'models', 'data' and 'seeds'")
        return self

    def _check_arms(self) -> None:
        arms = self._present
        for name, arm in arms.items():
            for field, other in (("from", arm.parent), ("snapshot_of", arm.snapshot_of)):
                if other == name:
                    raise ValueError(f"arms.{name}.{field}: is the arm itself; give another arm")
                if other is not None and other not in arms:
                    raise ValueError(f"arms.{name}.{field}: unknown arm '{other}'; {nearest(other, arms)}")
            for model in arm.override_at:
                self._check_is_a_panel(model, f"arms.{name}.override_at")
        twice = given_twice([arm.label for arm in arms.values()])
        if twice is not None:
            raise ValueError(f"arms: the label '{twice}' is given twice; pictures and tables name arms by their labels")

    def _check_grids_are_expanded(self) -> None:
        for name, arm in self.arms.items():
            if self.grid is not None or (arm is not None and arm.grid is not None):
                raise ValueError("grids are expanded only when a figure file is read")
            if arm is not None and arm.member is None and "[" in name:
                raise ValueError(f"arms.{name}: only members of a grid have a '[' in their name")

    def _check_drawings(self) -> None:
        members = self._members
        for plot in self.drawings:
            try:
                plot.check(members, self.arms)
            except ValueError as error:
                raise ValueError(f"drawings.{plot.kind}.{error}") from None
            for model in plot.panels():
                self._check_is_a_panel(model, f"drawings.{plot.kind}.against")

    def _check_claims(self) -> None:
        families, members = self.families, self._members
        for claim in self.claims:
            for other in claim.quantity.arms():
                if other not in self.arms and other not in families:
                    hint = nearest(other, [*self._present, *families])
                    raise ValueError(f"claims.{claim.id}: unknown arm '{other}'; {hint}")
            try:
                claim.quantity.check(members, self.arms)
                claims_of_members(claim, families)
            except ValueError as error:
                raise ValueError(f"claims.{claim.id}.quantity.{error}") from None
            for model in claim.models or ():
                self._check_is_a_panel(model, f"claims.{claim.id}.models")
            for model, _ in claim.quantity.panel_arms(panel=""):
                if model:
                    self._check_is_a_panel(model, f"claims.{claim.id}.quantity.against_model")

    def _check_claim_ids(self) -> None:
        twice = given_twice([claim.id for claim in self.claims])
        if twice is not None:
            raise ValueError(f"claims: the id '{twice}' is given twice")

    def _check_measurement_names(self) -> None:
        kinds: dict[str, str] = {}
        own_kinds: set[str] = set()
        for entry in self.measurements:
            where = f"measurements.{entry.called}"
            if not isinstance(entry, ArmsEntry):
                if entry.kind in own_kinds and issubclass(MEASUREMENTS[entry.kind], OfNothing):
                    raise ValueError(f"{where}: is given twice; a measurement of this kind can be given only once")
                own_kinds.add(entry.kind)
                continue
            for other in entry.arms or ():
                if other not in self.arms:
                    raise ValueError(f"{where}.arms: unknown arm '{other}'; {nearest(other, self._present)}")
            if entry.called in MEASUREMENTS and entry.called != entry.kind:
                raise ValueError(f"{where}: this is the name of another kind; give the {entry.kind} another name")
            if kinds.setdefault(entry.called, entry.kind) != entry.kind:
                raise ValueError(f"{where}: a {kinds[entry.called]} and a {entry.kind} have the same name")

    def _check_is_measured(self, reader: Reader, where: str) -> None:
        """Check that the figure has the measurements that a quantity or plot names explicitly."""
        named = [entry for entry in self.measurements if isinstance(entry, ArmsEntry) or reader.of_figure]
        there = {entry.called: entry.kind for entry in named}
        for field, (name, kind) in reader.named_measurements().items():
            if name not in there and not self.collect:
                raise ValueError(f"{where}.{field}: no measurement '{name}' in this figure; {nearest(name, there)}")
            if kind is not None and there.get(name, kind) != kind:
                raise ValueError(f"{where}.{field}: '{name}' is a {there[name]}, but a {kind} is needed")
        for field, (name, column) in reader.named_columns().items():
            schema = MEASUREMENTS[there[name]].table if name in there else None
            binned = field.rpartition(".")[2] in BINNED and "where" not in field
            if schema is not None and column not in schema.types and not (binned and is_key(schema, column)):
                hint = nearest(column, schema.types)
                raise ValueError(f"{where}.{field}: a {there[name]} table has no column '{column}'; {hint}")

    def _check_is_a_panel(self, model: str, where: str) -> None:
        if model not in self.models:
            raise ValueError(
                f"{where}: '{model}' is not in 'models' of this figure, which has {', '.join(self.models)}"
            )


class FigureTask(JudgedFigure):
    """A completely planned figure. Drawing and judging need only this and the tables."""

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
