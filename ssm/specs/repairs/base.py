"""What the specs of all repairs share: numbers that are chosen on text which nothing is trained or measured on.

A repair changes no weight by training. Its numbers stand in a point, one place each; None leaves the model as it is.
They are searched along axes, one after the other: of each axis every value is tried while all other places stay, and
the best is kept (`ssm.evaluation.repairing`). An axis may set several places to one value. What that costs is known
beforehand, in tokens read.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

from pydantic import PositiveFloat

from ssm.base.discovery import Registry
from ssm.specs.base import ReadCount, Spec
from ssm.specs.foreign import AnyModel, ForeignSpec

SPECS: Registry[type[Repair]] = Registry("ssm.specs.repairs")  # those that stand in this folder

Value = float | None  # None: as the model is
Point = tuple[Value, ...]


@dataclass(frozen=True)
class Axis:
    """Numbers that are tried at some places of a point, the same at all of them."""

    name: str
    places: tuple[int, ...]
    values: tuple[Value, ...]

    def moved(self, point: Point, value: Value) -> Point:
        """The point with this value at the axis' places."""
        return tuple(value if place in self.places else kept for place, kept in enumerate(point))


class Repair(Spec, ABC):
    """What is done to a model without training it, and the text that its numbers are chosen on."""

    in_reading: ClassVar[bool]  # a way of reading the model; else it is in its weights or its configuration
    kind: str
    sequences: ReadCount = 16  # windows that a trial reads, of the split `choice`
    times_context: PositiveFloat = 64.0  # their length, in T
    seed: int = 15  # which windows, together with the run's own seed

    @classmethod
    def __pydantic_init_subclass__(cls, **kwargs: Any) -> None:
        super().__pydantic_init_subclass__(**kwargs)
        SPECS.add_spec(cls)

    @abstractmethod
    def check(self, model: AnyModel) -> None:
        """Whether the model has what is repaired.

        Raises:
            ValueError: it has not.
        """

    @abstractmethod
    def start(self, model: AnyModel) -> Point:
        """Where the search begins: the model as it is."""

    @abstractmethod
    def axes(self, model: AnyModel, context: int) -> tuple[Axis, ...]:
        """What is searched, in order; `context` is T."""

    @property
    def passes(self) -> int:
        """Forward passes that a token takes when the repaired model reads it."""
        return 1

    @property
    def words(self) -> str:
        """What the run of the repaired model is called after."""
        return self.kind

    def length(self, context: int) -> int:
        """Tokens of a window; `context` is T."""
        return max(1, round(self.times_context * context))

    def tokens_read(self, model: AnyModel, context: int) -> int:
        """Tokens that the whole search sends forward at most: the model as it is, and every value of every axis."""
        trials = sum(len(axis.values) for axis in self.axes(model, context))
        return (1 + trials * self.passes) * self.sequences * self.length(context)


class OfLayers(Repair):
    """One number for all layers, or one a layer: then that for all first, and from there layer by layer."""

    in_reading: ClassVar[bool] = False
    needs: ClassVar[str]  # what a mixer's spec says of itself where it can be repaired so (`MixerSpecBase`)
    number: ClassVar[str]  # what stands before a number, in words
    by: Literal["model", "layer"] = "model"

    @property
    @abstractmethod
    def tried(self) -> Sequence[float]:
        """The values of every axis."""

    def layers(self, model: AnyModel) -> tuple[int, ...]:
        """The layers, from 0, that a point has a place for each."""
        if isinstance(model, ForeignSpec):
            return model.decays if self.needs == "has_a" else ()
        return tuple(layer for layer, mixer in enumerate(model.mixers()) if getattr(mixer, self.needs))

    @property
    def words(self) -> str:
        return self.kind if self.by == "model" else f"{self.kind} by {self.by}"

    def check(self, model: AnyModel) -> None:
        if not self.layers(model):
            kinds = ", ".join(sorted({mixer.kind for mixer in model.mixers()})) or "of transformers"
            raise ValueError(f"repair '{self.kind}': no layer of '{model.name}' ({kinds}) can be repaired so")

    def start(self, model: AnyModel) -> Point:
        return (None,) * len(self.layers(model))

    def said(self, model: AnyModel, point: Point) -> str:
        """A point in words."""
        values = [f"{self.number} {value:g}" if value is not None else "as it was" for value in point]
        if self.by == "model":
            return f"{values[0]} in {len(point)} layer{'s' * (len(point) > 1)}"
        layers = zip(values, self.layers(model), strict=True)
        return ", ".join(f"{value} in layer {layer}" for value, layer in layers)

    def axes(self, model: AnyModel, context: int) -> tuple[Axis, ...]:
        layers, values = self.layers(model), tuple(self.tried)
        together = Axis("all layers", tuple(range(len(layers))), values)
        if self.by == "model":
            return (together,)
        # None again: what is best for all need not be for one
        alone = [Axis(f"layer {layer}", (place,), (None, *values)) for place, layer in enumerate(layers)]
        return (together, *alone)
