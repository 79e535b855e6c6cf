"""What the specs of all quantities share: whose tables they read, and what they are without anybody's name."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, Protocol, Self

from pydantic import model_validator

from ssm.specs.base import Setting, Spec
from ssm.specs.reader import Reader, SeriesReader

Place = tuple[str, str]  # a panel (named model) and an arm of it
ROUNDING = 1e-12  # how far sums of thousands of float64 numbers of the order 1 are off, with room to spare


class Placed(Protocol):
    """What a quantity asks of a series."""

    @property
    def arm(self) -> str: ...

    @property
    def panel(self) -> str: ...

    @property
    def family(self) -> str | None: ...

    @property
    def axes(self) -> Mapping[str, Setting]: ...


class Quantity(Reader, ABC):
    """What tests a claim: a number with its interval."""

    definition: ClassVar[bool] = False  # a property of what was built: no experiment, no chance in it

    @property
    def timed(self) -> bool:
        """Whether it is made of times, which no two runs and no two machines have in common."""
        return False

    @property
    def rounding(self) -> float:
        """How far rounding alone may move its number, in the number's unit. A number so near to 0 is 0.

        The default is for numbers of the order 1 or larger: ratios, shares, exponents, nats, tokens.
        """
        return ROUNDING

    @abstractmethod
    def arms(self) -> tuple[str, ...]:
        """The arms that it names, the one that it is about first."""

    def about(self, series: Placed) -> bool:
        """Whether it is about this series: then it is judged on the panel of the series."""
        return series.arm in self.arms()[:1]

    @abstractmethod
    def places(self, panel: str, series: Sequence[Placed] = ()) -> tuple[Place, ...]:
        """Where the arms are that it reads when `panel` is judged, each once.

        Args:
            series: all of the figure. Arms that it names are told without.
        """

    @abstractmethod
    def nameless(self, panel: str, series: Sequence[Placed] = ()) -> dict[str, Any]:
        """Its content, in which an arm is its number among `places`, and a measurement or a model has no name."""


class FigureQuantity(Quantity):
    """A number of what the figure names, without an arm."""

    def arms(self) -> tuple[str, ...]:
        return ()

    def places(self, panel: str, series: Sequence[Placed] = ()) -> tuple[Place, ...]:
        return ()

    def nameless(self, panel: str, series: Sequence[Placed] = ()) -> dict[str, Any]:
        return self.content()

    @abstractmethod
    def decided_by(self, measured: Sequence[Spec]) -> tuple[list[Any], list[Any]]:
        """What is measured, and how, as plain data without names: what decides the number.

        Args:
            measured: the figure's own measurements of the kinds that it reads.
        """


class ModelQuantity(FigureQuantity):
    """A number of one named model as it is built."""

    model: str

    def nameless(self, panel: str, series: Sequence[Placed] = ()) -> dict[str, Any]:
        return {key: value for key, value in self.content().items() if key != "model"}

    def decided_by(self, measured: Sequence[Spec]) -> tuple[list[Any], list[Any]]:
        contents = [one.content() for one in measured]
        models = [one for content in contents for one in content["models"] if one["name"] == self.model]
        what = [{key: value for key, value in one.items() if key != "name"} for one in models]
        return what, [{key: value for key, value in content.items() if key != "models"} for content in contents]


class TaskQuantity(FigureQuantity):
    """A number of the figure's task."""

    def decided_by(self, measured: Sequence[Spec]) -> tuple[list[Any], list[Any]]:
        contents = [one.deciding() for one in measured]
        return [content.pop("task") for content in contents], contents


class SeriesQuantity(SeriesReader, Quantity):
    """A number a seed of one arm."""

    arm: str

    def arms(self) -> tuple[str, ...]:
        return (self.arm,)

    def places(self, panel: str, series: Sequence[Placed] = ()) -> tuple[Place, ...]:
        return ((panel, self.arm),)

    def nameless(self, panel: str, series: Sequence[Placed] = ()) -> dict[str, Any]:
        content = {key: value for key, value in self.content().items() if key not in self.naming()}
        return content | {"arm": self.places(panel).index((panel, self.arm))}


class ArmQuantity(SeriesQuantity):
    """A number a seed of one arm; with `against`, its ratio (or difference) to the same number of another arm.

    Both are of the panel that is judged, or `against` of the panel of another named model.
    """

    against: str | None = None
    against_model: str | None = None

    @model_validator(mode="after")
    def _a_model_of_an_arm(self) -> Self:
        if self.against_model is not None and self.against is None:
            raise ValueError("'against_model' needs 'against', the arm of that model")
        return self

    def there(self, panel: str) -> str:
        """The panel of `against`."""
        return self.against_model or panel

    def arms(self) -> tuple[str, ...]:
        return (self.arm,) if self.against is None else (self.arm, self.against)

    def places(self, panel: str, series: Sequence[Placed] = ()) -> tuple[Place, ...]:
        other = () if self.against is None else ((self.there(panel), self.against),)
        return tuple(dict.fromkeys(((panel, self.arm), *other)))

    def nameless(self, panel: str, series: Sequence[Placed] = ()) -> dict[str, Any]:
        content = super().nameless(panel)
        del content["against_model"]
        if self.against is not None:
            content["against"] = self.places(panel).index((self.there(panel), self.against))
        return content
