"""What the specs of all measurements share: what one is made on, what it reads, and how a figure file asks for it.

A measurement is made of a run's weights (`OfRun`; `OfWindows` where these read held-out windows of one length), of
another measurement's table of the same weights (`OfTable`), of what was logged when these were trained (`OfMetrics`)
or noted of it (`OfRecord`), or of what the figure names (`OfFigure`): its models as they are built (`OfModels`),
examples of its task (`OfTask`), or nothing but the numbers of the measurement itself (`OfNothing`).
Whoever asks (ssm/plan, ssm/evaluation) knows none by name. A figure file's entry has the fields of its kind but those
that the plan gives (`from_plan`), and beside them `name`, `arms`, and `times_context` where lengths may be given in
training contexts of the arm.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar, Literal, Self, cast, get_origin, get_type_hints

from pydantic import Field, PositiveFloat, PositiveInt, create_model

from ssm.base.discovery import Registry
from ssm.base.errors import ConfigError, nearest
from ssm.base.schema import Schema
from ssm.specs.base import Distinct, Name, ReadCount, Spec
from ssm.specs.config import DryRun
from ssm.specs.data import Data
from ssm.specs.model import ModelSpec
from ssm.specs.tasks import TaskSpec
from ssm.specs.tasks.base import Task
from ssm.specs.training import RunSpec

SPECS: Registry[type[Measurement]] = Registry("ssm.specs.measurements")  # those that stand in this folder

Names = Annotated[tuple[str, ...], Field(strict=False), Distinct]


@dataclass(frozen=True)
class Work:
    """What one model has to do for a measurement.

    Attributes:
        tokens: that go forward through it; a token that is trained on counts three times.
        length: of the longest sequence, in tokens.
        passes: forward passes that follow each other; None: as few as tokens fit into.
        channels: numbers of an input that is no token.
    """

    model: ModelSpec
    vocab_size: int
    tokens: float
    length: int
    passes: float | None = None
    channels: int | None = None


@dataclass(frozen=True)
class Arm:
    """What an arm of a figure gives its measurements.

    Attributes:
        run: whose weights are measured.
        measured: by name, what was planned of these weights before.
        data: the text or task of a name in config/data.yaml; raises ConfigError where there is none.
    """

    run: RunSpec
    measured: Mapping[str, Measurement]
    data: Callable[[str], Data]


class Entry(Spec):
    """A measurement as a figure file asks for it."""

    kind: str

    @property
    def called(self) -> str:
        """What errors call it."""
        return self.kind

    def given(self) -> dict[str, Any]:
        """The kind's own fields that have a value."""
        own = type(self).model_fields.keys() - ArmsEntry.model_fields.keys()
        return {name: value for name in sorted(own) if (value := getattr(self, name)) is not None}


class ArmsEntry(Entry):
    """One that is made of all arms of the figure, or of some."""

    name: Name | None = None  # of its tables in the figure; None: its kind
    arms: Names | None = None  # these alone; None: all

    @property
    def called(self) -> str:
        return self.name or self.kind


class Measurement(Spec, ABC):
    """What is measured, and how."""

    table: ClassVar[Schema]  # bears the name of the kind
    from_plan: ClassVar[frozenset[str]] = frozenset()  # fields that no figure file gives
    kind: str

    @classmethod
    def __pydantic_init_subclass__(cls, **kwargs: Any) -> None:
        super().__pydantic_init_subclass__(**kwargs)
        SPECS.add_spec(cls)

    @abstractmethod
    def work(self, run: RunSpec | None) -> tuple[Work, ...]:
        """What goes through models and takes time; `run` is the one that is measured."""

    @classmethod
    def entry_fields(cls) -> dict[str, Any]:
        """Name -> (type, default) of what a figure file may say, `name` and `arms` not counted."""
        types = get_type_hints(cls, include_extras=True)
        fields = {name: field for name, field in cls.model_fields.items() if name not in {"kind", *cls.from_plan}}
        return {
            name: (types[name], ...) if field.is_required() else (types[name] | None, None)
            for name, field in fields.items()
        }


class OfArm(Measurement):
    """Made of the weights of an arm's run, final ones or a snapshot."""

    @classmethod
    @abstractmethod
    def planned(cls, entry: ArmsEntry, arm: Arm, where: str) -> Self:
        """The measurement that an entry asks for, of one arm.

        Raises:
            ConfigError: values that are missing, given twice, or impossible for this arm.
        """

    @abstractmethod
    def capped(self, caps: DryRun, context: int) -> Self:
        """As in a dry run: at most `max_contexts` training contexts, and `max_sequences` sequences."""


class OfRun(OfArm):
    """Made by the model itself."""

    in_contexts: ClassVar[str | None] = None  # the field that a figure file may give in training contexts
    from_outside: ClassVar[bool] = False  # whether predictions are all that it asks for, as of a way of reading

    @classmethod
    def entry_fields(cls) -> dict[str, Any]:
        fields = super().entry_fields()
        if cls.in_contexts is not None:
            tokens, _ = fields[cls.in_contexts]
            contexts: Any = Annotated[tuple[PositiveFloat, ...], Field(strict=False, min_length=1)]
            times = contexts if get_origin(get_type_hints(cls)[cls.in_contexts]) is tuple else PositiveFloat
            fields |= {cls.in_contexts: (tokens | None, None), "times_context": (times | None, None)}
        return fields

    @classmethod
    def planned(cls, entry: ArmsEntry, arm: Arm, where: str) -> Self:
        given, context, repair = entry.given(), arm.run.training.context, arm.run.repair
        if repair is not None and repair.in_reading and not cls.from_outside:
            raise ConfigError(f"{where}: looks into the model, and '{repair.kind}' is a way of reading; name 'arms'")
        times = given.pop("times_context", None)
        if cls.in_contexts is not None:
            if (times is None) == (cls.in_contexts not in given):
                both = f"'{cls.in_contexts}' (tokens) or 'times_context' (training contexts)"
                raise ConfigError(f"{where}: give either {both}")
            if isinstance(times, tuple):
                given[cls.in_contexts] = tuple(max(1, round(one * context)) for one in times)
            elif times is not None:
                given[cls.in_contexts] = max(1, round(times * context))
        if "context" in cls.from_plan:
            given["context"] = context
        return cls.parse(given, where)

    def work(self, run: RunSpec | None) -> tuple[Work, ...]:
        assert run is not None
        tokens, length = self.read(run)
        return (Work(run.own_model, run.data.vocab_size, tokens, length, channels=run.data.channels),)

    def data(self, run: RunSpec) -> Data:
        """The text or task whose token store is read."""
        return run.data

    @abstractmethod
    def read(self, run: RunSpec) -> tuple[float, int]:
        """Tokens that go through the model, and of these the longest sequence's."""

    def rows(self, model: ModelSpec) -> float:
        """Rows of its table, where they are so many that a disk feels them."""
        return 0


class OfWindows(OfRun):
    """Made by reading held-out windows of one length."""

    # Tokens that are read at once, by kinds that hold what happens at each of them.
    at_once: ClassVar[Mapping[str, int]] = {"cpu": 2048, "cuda": 4096}
    backward: ClassVar[bool] = False  # whether these are held for a backward pass
    in_contexts: ClassVar[str | None] = "length"
    length: PositiveInt  # tokens a window
    sequences: ReadCount  # windows
    seed: int  # which windows, together with the run's own seed: all arms of a seed read the same

    @classmethod
    def planned(cls, entry: ArmsEntry, arm: Arm, where: str) -> Self:
        if arm.run.data.answers:
            raise ConfigError(f"{where}: reads a held-out text, and '{arm.run.data.name}' is a task")
        return super().planned(entry, arm, where)

    def read(self, run: RunSpec) -> tuple[float, int]:
        return self.sequences * self.length, self.length

    def together(self, device: str) -> int:
        """Windows that are read at once, on "cpu" or "cuda", where what happens at each token is held."""
        return max(1, self.at_once[device] // self.length)

    def capped(self, caps: DryRun, context: int) -> Self:
        length = min(self.length, caps.max_contexts * context)
        return self.model_copy(update={"length": length, "sequences": min(self.sequences, caps.max_sequences)})


class OfTable(OfArm):
    """Made from the table of another measurement, the field `of`: an entry calls that by its name in the figure."""

    of: OfRun

    @classmethod
    def entry_fields(cls) -> dict[str, Any]:
        return super().entry_fields() | {"of": (Name | None, None)}

    def work(self, run: RunSpec | None) -> tuple[Work, ...]:
        return ()

    def capped(self, caps: DryRun, context: int) -> Self:
        return self  # what it is made from is capped

    @classmethod
    def planned(cls, entry: ArmsEntry, arm: Arm, where: str) -> Self:
        given = entry.given()
        source: Any = cls.model_fields["of"].annotation
        kind = source.model_fields["kind"].default
        found = {name: one for name, one in arm.measured.items() if isinstance(one, source)}
        if not found:
            raise ConfigError(f"{where}: is made from a {kind} of the same arm, and this figure has none")
        name = given.get("of", next(iter(found)) if len(found) == 1 else kind)
        if name not in found:
            raise ConfigError(f"{where}: of: no {kind} of this arm is called '{name}'; {nearest(name, found)}")
        given["of"] = found[name]
        if "context" in cls.from_plan:
            given["context"] = arm.run.training.context
        return cls.parse(given, where)


class OfMetrics(OfArm):
    """Made from the metrics that the run's training has logged; of a snapshot, from those up to it."""

    @classmethod
    def planned(cls, entry: ArmsEntry, arm: Arm, where: str) -> Self:
        if arm.run.training.budget.steps == 0:
            raise ConfigError(f"{where}: '{arm.run.model.name}' was not trained here")
        return cls.parse(entry.given(), where)

    def work(self, run: RunSpec | None) -> tuple[Work, ...]:
        return ()

    def capped(self, caps: DryRun, context: int) -> Self:
        return self  # the training is capped


class OfRecord(OfArm):
    """Made from run.json, what a run's record says of how its weights were made."""


class OfFigure(Measurement):
    """Made of what the figure names, without an arm and its run."""

    @classmethod
    @abstractmethod
    def planned(cls, entry: Entry, models: tuple[ModelSpec, ...], data: Data | None, where: str) -> Self:
        """The measurement that an entry asks for.

        Args:
            models: the figure's named models.
            data: its text or task; None: it names none.

        Raises:
            ConfigError: the figure does not name what is measured, or impossible values.
        """

    @abstractmethod
    def capped(self, caps: DryRun) -> Self:
        """As in a dry run."""


class OfModels(OfFigure):
    """Made on named models as they are built: without a run, and of a data set with the vocabulary alone."""

    from_plan: ClassVar[frozenset[str]] = frozenset({"models", "vocab_size"})
    models: Annotated[tuple[ModelSpec, ...], Field(strict=False, min_length=1)]

    @classmethod
    def planned(cls, entry: Entry, models: tuple[ModelSpec, ...], data: Data | None, where: str) -> Self:
        needed = {"vocab_size"} & cls.model_fields.keys()
        if not models or (needed and data is None):
            raise ConfigError(f"{where}: needs 'models', and 'data' for its vocabulary")
        if needed and data is not None and data.channels is not None:
            raise ConfigError(f"{where}: is of models over tokens, and '{data.name}' has none")
        vocabulary = None if data is None else data.vocab_size
        return cls.parse(entry.given() | {"models": models} | dict.fromkeys(needed, vocabulary), where)


class OfTask(OfFigure):
    """Made of examples of a task, from the task's own token store."""

    from_plan: ClassVar[frozenset[str]] = frozenset({"task"})
    task: TaskSpec

    @classmethod
    def planned(cls, entry: Entry, models: tuple[ModelSpec, ...], data: Data | None, where: str) -> Self:
        if not isinstance(data, Task):
            raise ConfigError(f"{where}: needs 'data', and that a task")
        return cls.parse(entry.given() | {"task": data}, where)

    def work(self, run: RunSpec | None) -> tuple[Work, ...]:
        return ()

    def capped(self, caps: DryRun) -> Self:
        return self


class OfNothing(OfFigure):
    """Made of numbers alone: without a model, a text and a run."""

    @classmethod
    def planned(cls, entry: Entry, models: tuple[ModelSpec, ...], data: Data | None, where: str) -> Self:
        return cls.parse(entry.given(), where)


def entry_of(kind: str, spec: type[Measurement]) -> type[Entry]:
    """What a figure file may say of a kind."""
    base = Entry if issubclass(spec, OfFigure) else ArmsEntry
    fields: dict[str, Any] = {"kind": (Literal[kind], kind)} | spec.entry_fields()
    return cast(type[Entry], create_model(f"{spec.__name__}Entry", __base__=base, __doc__=spec.__doc__, **fields))
