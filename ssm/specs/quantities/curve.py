"""What the specs of a curve's numbers share: the curve is a family of arms, or a column of one arm's table."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Annotated, Any, ClassVar, Self

from pydantic import Field, model_validator

from ssm.specs.base import Name, Setting
from ssm.specs.families import Member
from ssm.specs.quantities.base import Place, Placed, Quantity
from ssm.specs.quantities.sweep import Sweep


class CurveQuantity(Quantity):
    """A number of a curve.

    `sweep`: a quantity against the number in which arms differ. Or `arm`, `measurement`, `x` and `column`: a column of
    one arm's table against another, of the rows of `where`, and of the points `between` two of x, both included; with
    `against` told apart from the same of another arm, there of the rows of `against_where` if that is given.
    """

    reads: ClassVar[tuple[str, ...]] = ()  # any
    later: ClassVar[frozenset[str]] = frozenset({"between", "against_where"})
    sweep: Sweep | None = None
    arm: str | None = None
    against: str | None = None
    against_model: str | None = None
    measurement: Name | None = None
    x: Name | None = None
    column: Name | None = None
    where: dict[Name, Setting] = {}
    against_where: dict[Name, Setting] | None = None  # None: as `where`
    between: Annotated[tuple[float, float], Field(strict=False)] | None = None
    exponential: bool = False  # the column is a logarithm (a loss in nats), and its exponential is meant

    @model_validator(mode="after")
    def _one_curve(self) -> Self:
        of_arm = (self.arm, self.measurement, self.x, self.column)
        if self.sweep is None and None in of_arm:
            raise ValueError("give either 'sweep', or all of 'arm', 'measurement', 'x' and 'column'")
        chosen = (self.where or None, self.against_where, self.between, self.exponential or None)
        others = (*of_arm, self.against, self.against_model, *chosen)
        if self.sweep is not None and any(one is not None for one in others):
            raise ValueError("a 'sweep' says by itself what is read, of which arms")
        if self.against_model is not None and self.against is None:
            raise ValueError("'against_model' needs 'against', the arm of that model")
        if self.against_where is not None and self.against is None:
            raise ValueError("'against_where' needs 'against', the arm whose rows it chooses")
        return self

    @property
    def compared(self) -> bool:
        """Whether it is told apart from the number of another curve."""
        return self.against is not None or (self.sweep is not None and self.sweep.compared)

    @property
    def names(self) -> tuple[str, ...]:
        return self.sweep.quantity().names if self.sweep is not None else (str(self.measurement),)

    def named(self) -> dict[str, tuple[str, str | None]]:
        if self.sweep is not None:
            return {f"sweep.of.{field}": name for field, name in self.sweep.quantity().named().items()}
        return {"measurement": (str(self.measurement), None)}

    def arms(self) -> tuple[str, ...]:
        if self.sweep is not None:
            return self.sweep.named_arms()
        return tuple(arm for arm in (self.arm, self.against) if arm is not None)

    def check(self, families: Mapping[str, Mapping[str, Member]], arms: Collection[str]) -> None:
        if self.sweep is not None:
            self.sweep.check(families)

    def about(self, series: Placed) -> bool:
        return self.sweep.about(series) if self.sweep is not None else series.arm == self.arm

    def places(self, panel: str, series: Sequence[Placed] = ()) -> tuple[Place, ...]:
        if self.sweep is not None:
            return self.sweep.places(panel, series)
        places = [(panel, str(self.arm))]
        if self.against is not None:
            places.append((self.against_model or panel, self.against))
        return tuple(dict.fromkeys(places))

    def nameless(self, panel: str, series: Sequence[Placed] = ()) -> dict[str, Any]:
        curve = {"sweep", "arm", "against", "against_model", "measurement"}
        content = {key: value for key, value in self.content().items() if key not in curve}
        if self.sweep is not None:
            return content | {"sweep": self.sweep.nameless(panel, series)}
        order = self.places(panel, series)
        other = None if self.against is None else order.index((self.against_model or panel, self.against))
        return content | {"arm": 0, "against": other}
