"""Base classes for specs of measurements: their input, their cost, and their entry in a figure file.

| class | input |
|---|---|
| `OfRun` | the weights of a run |
| `OfWindows` | the same, which read held-out windows of one length |
| `OfTable` | the table of another measurement of the same weights |
| `OfMetrics` | the metrics that training logged |
| `OfRecord` | the record of a run (run.json) |
| `OfModels` | models of the figure, as they are initialized |
| `OfTask` | examples of the figure's task |
| `OfNothing` | the numbers in the spec |

An entry of a figure file has the fields of its kind, without those that the plan sets (`from_plan`). It also has
`name` and `arms`, and `times_context` if lengths can be given in training contexts.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar, Literal, Self, cast, get_origin, get_type_hints

from pydantic import Field, PositiveFloat, PositiveInt, create_model

from ssm.base.discovery import Registry, RegistryError, file_of
from ssm.base.errors import ConfigError, nearest
from ssm.base.schema import Schema
from ssm.specs.base import Name, Names, PluginSpec, ReadCount, Spec
from ssm.specs.config import DryRun
from ssm.specs.data import Data, DataSpec
from ssm.specs.model import ModelSpec
from ssm.specs.tasks import TaskSpec
from ssm.specs.tasks.base import Task
from ssm.specs.training import RunSpec

SPECS: Registry[type[Measurement]] = Registry("ssm.specs.measurements")
A_DECAY = "a decay for each state (a linear recurrence whose A_t is diagonal)"  # what some measurements read


@dataclass(frozen=True)
class Work:
    """The computation that a measurement takes on one model.

    Attributes:
        tokens: tokens in forward passes; a token with a backward pass counts three times.
        length: tokens of the longest sequence.
        passes: number of forward passes, one after the other; None: as few as possible.
        channels: numbers in an input that is not a token.
        continued: how often a pass continues the state of a sequence of this length.
    """

    model: ModelSpec
    vocab_size: int
    tokens: float
    length: int
    passes: float | None = None
    channels: int | None = None
    continued: float = 0.0


@dataclass(frozen=True)
class Arm:
    """An arm of a figure, for planning its measurements.

    Attributes:
        run: the run with the weights to measure.
        measured: measurements of these weights that are already planned, by name.
        data: gives the text or task of a name in config/data.yaml; raises ConfigError for an unknown name.
    """

    run: RunSpec
    measured: Mapping[str, Measurement]
    data: Callable[[str], Data]


def require_unseen(text: DataSpec, run: RunSpec, where: str) -> None:
    """Check that no text that trained the weights has a document that `text` holds out.

    Raises:
        ConfigError: one has; the message begins with `where`.
    """
    for trained in run.trained_on:
        if not text.kept_from(trained):
            raise ConfigError(
                f"{where}: '{trained.name}' trains on documents that '{text.name}' holds out; give both the same "
                "held_out and held_out_seed"
            )


class Entry(Spec):
    """A measurement in a figure file."""

    kind: str  # the measurement, one of those below

    @property
    def called(self) -> str:
        """The name in error messages."""
        return self.kind

    def given(self) -> dict[str, Any]:
        """The fields of the kind that have a value."""
        own = type(self).model_fields.keys() - ArmsEntry.model_fields.keys()
        return {name: value for name in sorted(own) if (value := getattr(self, name)) is not None}


class ArmsEntry(Entry):
    """A measurement of all arms of the figure, or of some."""

    name: Name | None = None  # name of the measurement in the figure; default: its kind
    arms: Names | None = None  # arms to measure; without it, all

    @property
    def called(self) -> str:
        return self.name or self.kind


class Measurement(PluginSpec):
    """A measurement and its settings."""

    registry: ClassVar[Registry[Any]] = SPECS
    table: ClassVar[Schema]  # the name is the kind
    from_plan: ClassVar[frozenset[str]] = frozenset()  # fields that the plan sets
    kind: str

    @classmethod
    def __pydantic_init_subclass__(cls, **kwargs: Any) -> None:
        """Raises `RegistryError`: the table has the name of another kind."""
        kind, table = cls.model_fields["kind"].default, getattr(cls, "table", None)
        if isinstance(kind, str) and isinstance(table, Schema) and table.name != kind:
            place = file_of(cls.__module__)
            raise RegistryError(f"{place}: the table of {cls.__name__} is '{table.name}', expected its kind '{kind}'")
        super().__pydantic_init_subclass__(**kwargs)

    def work(self, run: RunSpec | None) -> tuple[Work, ...]:
        """Computation on models, for estimates of time and memory. `run` is the run that is measured."""
        return ()

    @classmethod
    def entry_fields(cls) -> dict[str, Any]:
        """Name -> (type, default) of the keys in a figure file, without `name` and `arms`."""
        types = get_type_hints(cls, include_extras=True)
        fields = {name: field for name, field in cls.model_fields.items() if name not in {"kind", *cls.from_plan}}
        return {
            name: (types[name], ...) if field.is_required() else (types[name] | None, None)
            for name, field in fields.items()
        }


class OfArm(Measurement):
    """A measurement of the run of an arm: its final weights, or a snapshot."""

    @classmethod
    def planned(cls, entry: ArmsEntry, arm: Arm, where: str) -> Self:
        """The measurement of one arm, from an entry in a figure file.

        Raises:
            ConfigError: values are missing, given twice, or impossible for this arm.
        """
        return cls.parse(entry.given(), where)

    def capped(self, caps: DryRun, context: int) -> Self:
        """The measurement in a dry run: at most `max_contexts` training contexts and `max_sequences` sequences."""
        return self  # it reads the result of another job, which is capped


class OfRun(OfArm):
    """A measurement that the model itself makes."""

    in_contexts: ClassVar[str | None] = None  # field that a figure file can give in training contexts instead
    from_outside: ClassVar[bool] = False  # whether it needs only predictions, so that any way of reading has it

    def lacking(self, model: ModelSpec) -> str | None:
        """What the measurement reads and no layer of the model has; None: nothing is missing."""
        return None

    @classmethod
    def parse_for(cls, given: dict[str, Any], arm: Arm, where: str) -> Self:
        """The measurement of one arm with the given fields.

        Raises:
            ConfigError: fields are wrong. Or the measurement reads inside the model, and a repair changes how the model
                is read, or no layer has what it reads.
        """
        repair, model = arm.run.repair, arm.run.own_model
        if repair is not None and repair.in_reading and not cls.from_outside:
            raise ConfigError(
                f"{where}: reads inside the model, which is not possible with the repair '{repair.kind}'; choose "
                "other arms with the key 'arms'"
            )
        measurement = cls.parse(given, where)
        missing = measurement.lacking(model)
        if missing is not None:
            raise ConfigError(
                f"{where}: needs a layer with {missing}, and '{model.name}' has none; choose other arms with the key "
                "'arms'"
            )
        return measurement

    @classmethod
    def named(cls, entry: ArmsEntry, arm: Arm, where: str) -> dict[str, Any]:
        """The fields for which a figure file gives the name of a text or task.

        Raises:
            ConfigError: the name is unknown, or its text or task does not suit this arm.
        """
        return {}

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
        given, context = entry.given() | cls.named(entry, arm, where), arm.run.training.context
        times = given.pop("times_context", None)
        if cls.in_contexts is not None:
            if (times is None) == (cls.in_contexts not in given):
                both = f"'{cls.in_contexts}' (tokens) or 'times_context' (training contexts)"
                raise ConfigError(f"{where}: give either {both}")
            if isinstance(times, tuple):
                given[cls.in_contexts] = tuple(max(1, round(number * context)) for number in times)
            elif times is not None:
                given[cls.in_contexts] = max(1, round(times * context))
        if "context" in cls.from_plan:
            given["context"] = context
        return cls.parse_for(given, arm, where)

    def work(self, run: RunSpec | None) -> tuple[Work, ...]:
        assert run is not None
        tokens, length = self.read(run)
        return (Work(run.own_model, run.data.vocab_size, tokens, length, channels=run.data.channels),)

    def data(self, run: RunSpec) -> Data:
        """The text or task with the token store to read."""
        return run.data

    @abstractmethod
    def read(self, run: RunSpec) -> tuple[float, int]:
        """Tokens in forward passes, and tokens of the longest sequence."""

    @abstractmethod
    def capped(self, caps: DryRun, context: int) -> Self: ...

    def rows(self, model: ModelSpec) -> float:
        """Rows of the table; 0 if they are few, so that they do not count in the estimate of disk space."""
        return 0


class OfWindows(OfRun):
    """A measurement on held-out windows of one length."""

    # tokens in a forward pass, for kinds that keep the signals of each token
    at_once: ClassVar[Mapping[str, int]] = {"cpu": 2048, "cuda": 4096}
    backward: ClassVar[bool] = False  # whether a backward pass needs these signals
    in_contexts: ClassVar[str | None] = "length"
    later: ClassVar[frozenset[str]] = frozenset({"text"})
    length: PositiveInt  # tokens of a window
    sequences: ReadCount  # number of windows
    seed: int  # chooses the windows, together with the seed of the run; arms of one seed read the same windows

    text: DataSpec | None = None  # name of the text in data.yaml; default: the text of the arm's training

    @classmethod
    def entry_fields(cls) -> dict[str, Any]:
        return super().entry_fields() | {"text": (Name | None, None)}

    @classmethod
    def named(cls, entry: ArmsEntry, arm: Arm, where: str) -> dict[str, Any]:
        own, name = arm.run.data, entry.given().get("text")
        text = own if name is None else arm.data(name)
        if not isinstance(text, DataSpec):
            raise ConfigError(f"{where}: reads held-out text, and '{text.name}' is a task")
        if text.spelling != own.spelling:
            raise ConfigError(f"{where}: text: '{text.name}' has other tokens than '{own.name}', which the run reads")
        require_unseen(text, arm.run, f"{where}: text")
        return {"text": None if text == own else text}

    def data(self, run: RunSpec) -> Data:
        return self.text or run.data

    def read(self, run: RunSpec) -> tuple[float, int]:
        return self.sequences * self.length, self.length

    def windows_per_pass(self, device: str) -> int:
        """Windows in a forward pass on "cpu" or "cuda", for kinds that keep the signals of each token."""
        return max(1, self.at_once[device] // self.length)

    def capped(self, caps: DryRun, context: int) -> Self:
        length = min(self.length, caps.max_contexts * context)
        return self.model_copy(update={"length": length, "sequences": min(self.sequences, caps.max_sequences)})


class OfTable(OfArm):
    """A measurement from the table of another measurement, `of`. A figure file gives its name."""

    of: OfRun

    @classmethod
    def entry_fields(cls) -> dict[str, Any]:
        return super().entry_fields() | {"of": (Name | None, None)}

    @classmethod
    def planned(cls, entry: ArmsEntry, arm: Arm, where: str) -> Self:
        given = entry.given()
        source: Any = cls.model_fields["of"].annotation
        kind = source.model_fields["kind"].default
        sources = {name: measured for name, measured in arm.measured.items() if isinstance(measured, source)}
        if not sources:
            raise ConfigError(f"{where}: needs a {kind} of the same arm, and this figure has none")
        name = given.get("of", next(iter(sources)) if len(sources) == 1 else kind)
        if name not in sources:
            raise ConfigError(f"{where}: of: no {kind} of this arm is called '{name}'; {nearest(name, sources)}")
        given["of"] = sources[name]
        if "context" in cls.from_plan:
            given["context"] = arm.run.training.context
        return cls.parse(given, where)


class OfMetrics(OfArm):
    """A measurement from the metrics that training logged, up to the snapshot if one is measured."""

    @classmethod
    def planned(cls, entry: ArmsEntry, arm: Arm, where: str) -> Self:
        if arm.run.training.budget.steps == 0:
            raise ConfigError(f"{where}: '{arm.run.model.name}' was not trained here")
        return super().planned(entry, arm, where)


class OfRecord(OfArm):
    """A measurement from the record of a run, run.json."""


class OfFigure(Measurement):
    """A measurement without arms, of models or data that the figure names."""

    @classmethod
    def planned(cls, entry: Entry, models: tuple[ModelSpec, ...], data: Data | None, where: str) -> Self:
        """The measurement, from an entry in a figure file.

        Args:
            models: the models that the figure names.
            data: the text or task of the figure; None: it names none.

        Raises:
            ConfigError: the figure does not name the models or the data, or values are impossible.
        """
        return cls.parse(entry.given(), where)

    def capped(self, caps: DryRun) -> Self:
        """The measurement in a dry run."""
        return self


class OfModels(OfFigure):
    """A measurement of named models as they are initialized. It reads only the vocabulary size of a data set."""

    from_plan: ClassVar[frozenset[str]] = frozenset({"models", "vocab_size"})
    models: Annotated[tuple[ModelSpec, ...], Field(strict=False, min_length=1)]

    @classmethod
    def planned(cls, entry: Entry, models: tuple[ModelSpec, ...], data: Data | None, where: str) -> Self:
        needed = {"vocab_size"} & cls.model_fields.keys()
        if not models or (needed and data is None):
            raise ConfigError(f"{where}: needs 'models', and 'data' for its vocabulary")
        if needed and data is not None and data.channels is not None:
            raise ConfigError(f"{where}: measures models of tokens, and the inputs of '{data.name}' are not tokens")
        vocabulary = None if data is None else data.vocab_size
        return cls.parse(entry.given() | {"models": models} | dict.fromkeys(needed, vocabulary), where)


class OfTask(OfFigure):
    """A measurement of examples of a task, from the token store of the task."""

    from_plan: ClassVar[frozenset[str]] = frozenset({"task"})
    task: TaskSpec

    @classmethod
    def planned(cls, entry: Entry, models: tuple[ModelSpec, ...], data: Data | None, where: str) -> Self:
        if not isinstance(data, Task):
            raise ConfigError(f"{where}: needs a task as 'data'")
        return cls.parse(entry.given() | {"task": data}, where)


class OfNothing(OfFigure):
    """A measurement without a model, a text or a run."""


def entry_of(kind: str, spec: type[Measurement]) -> type[Entry]:
    """The class of the entries of a kind in figure files."""
    base = Entry if issubclass(spec, OfFigure) else ArmsEntry
    fields: dict[str, Any] = {"kind": (Literal[kind], kind)} | spec.entry_fields()
    return cast(type[Entry], create_model(f"{spec.__name__}Entry", __base__=base, __doc__=spec.__doc__, **fields))
