"""Measurements: each takes one run (and perhaps another table) and gives one table."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, PositiveInt, model_validator

from ssm.specs.base import Spec, slug
from ssm.specs.model import ModelSpec
from ssm.specs.training import RunSpec

Depth = Annotated[float, Field(ge=0, le=1)]  # of a key in a text: 0 its start, 1 its end


class PositionLoss(Spec):
    """The loss at every position of long held-out windows, from the zero state (lg Def. 3.1), in bins."""

    kind: Literal["position_loss"] = "position_loss"
    length: PositiveInt  # tokens a window
    sequences: PositiveInt
    seed: int = 5  # which windows, together with the run's own seed: all arms of a seed read the same


class RestartLoss(Spec):
    """The loss on the same targets when the model starts anew T/2 to T tokens before each of them.

    Measured where the paired ratio is read: the last quarter [3/4 kT, kT) for k = 1, 2, 4 ... up to `length`. Or
    `everywhere`: in every bin of positions from T/2 on, so that each bin of the position_loss has its pair.
    """

    kind: Literal["restart_loss"] = "restart_loss"
    length: PositiveInt
    sequences: PositiveInt
    seed: int = 5
    context: PositiveInt  # T
    everywhere: bool = False

    @model_validator(mode="after")
    def _power_of_two(self) -> RestartLoss:
        if self.context < 4 or self.context & (self.context - 1):
            raise ValueError(f"the paired ratio needs a context that is a power of two from 4 on, got {self.context}")
        return self


class EffectiveRemembrance(Spec):
    """d(q(.|x_0:T), q(.|x_t:T)) against t under three distances (lg Def. 3.3 and Appendix G)."""

    kind: Literal["effective_remembrance"] = "effective_remembrance"
    length: PositiveInt  # T of the definition
    sequences: PositiveInt
    seed: int = 6


class StateStatistics(Spec):
    """Norm, mean and standard deviation of the state by layer and head, against position (lg figures 4 and 9)."""

    kind: Literal["state_statistics"] = "state_statistics"
    length: PositiveInt
    sequences: PositiveInt
    seed: int = 7


class Passkey(Spec):
    """A key hidden in a text of repeated sentences, asked for at its end (lg Section 5.2, Figure 8)."""

    kind: Literal["passkey"] = "passkey"
    lengths: Annotated[tuple[PositiveInt, ...], Field(strict=False, min_length=1)]  # tokens, ascending: prompt and key
    depths: Annotated[tuple[Depth, ...], Field(strict=False, min_length=1)] = (0.0, 0.25, 0.5, 0.75, 1.0)  # ascending
    trials: PositiveInt = 8  # keys at each length and depth
    digits: Annotated[int, Field(ge=1, le=18)] = 5  # of a key
    seed: int = 10  # which keys, together with the run's own seed

    @model_validator(mode="after")
    def _ascending(self) -> Passkey:
        for name, values in (("lengths", self.lengths), ("depths", self.depths)):
            if list(values) != sorted(set(values)):
                raise ValueError(f"{name} must ascend, got {list(values)}")
        return self


class LengthClass(Spec):
    """The class of a curve (ls Def. 2.1, lg Def. 3.2), from the run's position_loss table."""

    kind: Literal["length_class"] = "length_class"
    of: PositionLoss
    context: PositiveInt  # T_train of lg Def. 3.2

    @model_validator(mode="after")
    def _enough(self) -> LengthClass:
        if self.of.sequences < 4:
            raise ValueError(f"a length class needs a curve of at least 4 sequences, got {self.of.sequences}")
        return self


class ModelSize(Spec):
    """Configuration and parameter count of named models (lg Table 2). Needs no run."""

    kind: Literal["model_size"] = "model_size"
    models: Annotated[tuple[ModelSpec, ...], Field(strict=False, min_length=1)]
    vocab_size: PositiveInt


class Taxonomy(Spec):
    """What kind of recurrence every model's mixer is, declared and measured (ls Table 2, bn App. B). Needs no run."""

    kind: Literal["taxonomy"] = "taxonomy"
    models: Annotated[tuple[ModelSpec, ...], Field(strict=False, min_length=1)]
    length: Annotated[int, Field(ge=2)] = 64  # tokens over which the state is watched
    seed: int = 8


class Cost(Spec):
    """Time and memory of a training step and of a decoding step against length (ls Table 1). Needs no run."""

    kind: Literal["cost"] = "cost"
    models: Annotated[tuple[ModelSpec, ...], Field(strict=False, min_length=1)]
    vocab_size: PositiveInt
    lengths: Annotated[tuple[PositiveInt, ...], Field(strict=False, min_length=2)]  # T, ascending
    repeats: PositiveInt = 5
    seed: int = 9

    @model_validator(mode="after")
    def _ascending(self) -> Cost:
        if list(self.lengths) != sorted(set(self.lengths)):
            raise ValueError(f"lengths must ascend, got {list(self.lengths)}")
        return self


MeasurementSpec = Annotated[
    PositionLoss
    | RestartLoss
    | EffectiveRemembrance
    | StateStatistics
    | Passkey
    | LengthClass
    | ModelSize
    | Taxonomy
    | Cost,
    Field(discriminator="kind"),
]


class MeasurementTask(Spec):
    """A measurement of a run's final weights, or of a snapshot of them."""

    measurement: MeasurementSpec
    run: RunSpec | None = None
    snapshot: float | None = None  # a fraction of the run's steps; None: the final weights

    @model_validator(mode="after")
    def _sane(self) -> MeasurementTask:
        if (self.run is None) != isinstance(self.measurement, ModelSize | Taxonomy | Cost):
            raise ValueError(f"'{self.measurement.kind}' {'needs a run' if self.run is None else 'takes no run'}")
        if self.snapshot is not None and (self.run is None or self.snapshot not in self.run.training.snapshots):
            raise ValueError(f"the run keeps no snapshot at {self.snapshot}")
        return self

    @property
    def id(self) -> str:
        """A readable slug and the content's hash: the name of the table."""
        run = self.run.id.rsplit("-", 1)[0] if self.run else ""
        at = f"at{self.snapshot:g}" if self.snapshot is not None else ""
        return slug(self.measurement.kind, run, at) + f"-{self.content_hash}"
