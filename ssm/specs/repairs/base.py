"""The base class for specs of repairs: changes of a model without training.

A point holds the numbers of a repair; None leaves the model unchanged at this place. `ssm.evaluation.repairing`
searches the point along axes, one after the other. It tries every value of an axis, keeps the other places, and
continues from the best. An axis can set several places to one value. The number of tokens to read is known before.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

from pydantic import PositiveFloat

from ssm.base.counting import counted
from ssm.base.discovery import Registry
from ssm.specs.base import PluginSpec, ReadCount
from ssm.specs.foreign import AnyModel, ForeignSpec

SPECS: Registry[type[Repair]] = Registry("ssm.specs.repairs")

Value = float | None  # None: unchanged
Point = tuple[Value, ...]


@dataclass(frozen=True)
class Axis:
    """Values to try. All `places` of a point get the same value."""

    name: str
    places: tuple[int, ...]
    values: tuple[Value, ...]

    def moved(self, point: Point, value: Value) -> Point:
        """The point with this value at the places of the axis."""
        return tuple(value if place in self.places else kept for place, kept in enumerate(point))


class Repair(PluginSpec):
    """A repair without training, and the text on which its numbers are chosen."""

    registry: ClassVar[Registry[Any]] = SPECS
    in_reading: ClassVar[bool]  # whether it changes how the model is read, and not its weights or configuration
    # why no checkpoint of another library can hold it, for messages; None: one can
    unstored: ClassVar[str | None] = "changes how a model is read, and no checkpoint format can store that"
    kind: str
    sequences: ReadCount = 16  # windows for each trial, from the documents that `choice` sets aside
    times_context: PositiveFloat = 64.0  # length of the windows, in training contexts T
    seed: int = 15  # chooses the windows, together with the seed of the run

    @abstractmethod
    def check(self, model: AnyModel) -> None:
        """Check that the model has the part to repair.

        Raises:
            ValueError: it does not.
        """

    @abstractmethod
    def start(self, model: AnyModel) -> Point:
        """The first point of the search: the unchanged model."""

    @abstractmethod
    def axes(self, model: AnyModel, context: int) -> tuple[Axis, ...]:
        """The axes of the search, in order; `context` is T."""

    @property
    def passes(self) -> int:
        """Forward passes for each token when the repaired model reads."""
        return 1

    @property
    def words(self) -> str:
        """Words for the name of the run of the repaired model."""
        return self.kind

    def length(self, context: int) -> int:
        """Tokens of a window; `context` is T."""
        return max(1, round(self.times_context * context))

    def most_trials(self, model: AnyModel, context: int) -> int:
        """Maximum number of trials of the search: the unchanged model, and every value; `context` is T."""
        return 1 + sum(len(axis.values) for axis in self.axes(model, context))

    def tokens_read(self, model: AnyModel, context: int) -> int:
        """Maximum number of tokens in forward passes of the search: the unchanged model, and every value."""
        trials = self.most_trials(model, context)
        return (1 + (trials - 1) * self.passes) * self.sequences * self.length(context)


class OfLayers(Repair):
    """A repair with one number for the whole model, or one for each layer."""

    in_reading: ClassVar[bool] = False
    unstored: ClassVar[str | None] = None
    needs: ClassVar[str]  # attribute of `MixerSpecBase` that is True for mixers with the part to repair
    number: ClassVar[str]  # words before a number in messages
    by: Literal["model", "layer"] = "model"  # `layer`: after the best value for all layers, search layer by layer

    @property
    @abstractmethod
    def tried(self) -> Sequence[float]:
        """The values of every axis."""

    def layers(self, model: AnyModel) -> tuple[int, ...]:
        """The layers (from 0) that can be repaired. A point has a place for each."""
        if isinstance(model, ForeignSpec):
            return model.decays if self.needs == "has_a" else ()
        return tuple(layer for layer, mixer in enumerate(model.mixers()) if getattr(mixer, self.needs))

    @property
    def words(self) -> str:
        return self.kind if self.by == "model" else f"{self.kind} by {self.by}"

    def check(self, model: AnyModel) -> None:
        if not self.layers(model):
            kinds = ", ".join(sorted({mixer.kind for mixer in model.mixers()})) or "of transformers"
            raise ValueError(f"repair '{self.kind}': no layer of '{model.name}' ({kinds}) can be repaired")

    def start(self, model: AnyModel) -> Point:
        return (None,) * len(self.layers(model))

    def most_trials(self, model: AnyModel, context: int) -> int:
        return self.trials_of(len(self.layers(model)))

    def trials_of(self, layers: int) -> int:
        """Maximum number of trials, the unchanged model included, with this number of layers that can be repaired."""
        return 1 + len(self.tried) * (1 + layers * (self.by == "layer"))

    def said(self, model: AnyModel, point: Point) -> str:
        """A point in words."""
        values = [f"{self.number} {value:g}" if value is not None else "unchanged" for value in point]
        if self.by == "model":
            return f"{values[0]} in {counted(len(point), 'layer')}"
        layers = zip(values, self.layers(model), strict=True)
        return ", ".join(f"{value} in layer {layer}" for value, layer in layers)

    def axes(self, model: AnyModel, context: int) -> tuple[Axis, ...]:
        layers, values = self.layers(model), tuple(self.tried)
        together = Axis("all layers", tuple(range(len(layers))), values)
        if self.by == "model":
            return (together,)
        # None is tried again, because the best value for all layers may be worse than none in a single layer. Of the
        # values and None, one is that of the best point so far.
        single = [Axis(f"layer {layer}", (place,), (None, *values)) for place, layer in enumerate(layers)]
        return (together, *single)
