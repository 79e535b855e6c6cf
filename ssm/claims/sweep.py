"""A quantity without its arm, and a sweep: that quantity at a family of arms that differ by a number."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Annotated, Any, ClassVar, Self

from pydantic import AfterValidator, Field, ValidationError, model_validator

from ssm.base.errors import nearest, shown
from ssm.base.strict_parsing import first_problem
from ssm.claims.families import Member, axis_values, has_values, is_number, require_axes
from ssm.claims.quantity import QUANTITIES, PanelArm, SeedQuantity
from ssm.claims.reader import Reader
from ssm.claims.series import Series
from ssm.specs.base import Distinct, Name, Setting, Spec

SOME = "arm"  # placeholder arm, where any arm will do


def quantity_of(content: Mapping[str, Any], arm: str) -> SeedQuantity:
    """Make a quantity of one arm from content that has no arm.

    Raises:
        ValueError: the content is not a quantity of an arm.
    """
    of_arms = {
        kind: spec for kind, spec in QUANTITIES.items() if issubclass(spec, SeedQuantity) and "arm" in spec.model_fields
    }
    kind = content.get("kind")
    if not isinstance(kind, str) or kind not in of_arms:
        raise ValueError(f"kind: {shown(kind)} is not a quantity of an arm; {nearest(str(kind), of_arms)}")
    if "arm" in content:
        raise ValueError("arm: leave it out here; the arms are given elsewhere")
    try:
        return of_arms[kind].model_validate({**content, "arm": arm})
    except ValidationError as error:
        raise ValueError(first_problem(error, content)) from error


def _complete(content: dict[str, Any]) -> dict[str, Any]:
    """The content with all defaults, so that equal quantities have equal hashes."""
    if content.get("two_kinds"):
        raise ValueError("two_kinds: leave it out of 'of'; only the claim's own quantity can have it, such as value_at")
    return {key: value for key, value in quantity_of(content, SOME).content().items() if key != "arm"}


def content_without_arms(quantity: SeedQuantity, panel: str, series: Sequence[Series]) -> dict[str, Any]:
    """The canonical content of a quantity without the fields that name arms."""
    roles = ("arm", "against", "restarted")
    return {key: value for key, value in quantity.canonical(panel, series).items() if key not in roles}


Of = Annotated[dict[str, Any], AfterValidator(_complete)]
Arms = Annotated[tuple[Name, ...], Field(strict=False, min_length=2), Distinct]
Numbers = Annotated[tuple[float, ...], Field(strict=False, min_length=2), Distinct]


class OfQuantity(Reader):
    """Applies a quantity to arms. The quantity is written without its arm."""

    reads: ClassVar[tuple[str, ...]] = ()  # any measurement
    of: Of  # a quantity, without its key `arm`

    def quantity(self, arm: str = SOME) -> SeedQuantity:
        """The quantity of one arm."""
        return quantity_of(self.of, arm)

    @property
    def measurement_names(self) -> tuple[str, ...]:
        return self.quantity().measurement_names

    def nested_readers(self) -> dict[str, Reader]:
        return {"of": self.quantity()}


class Sweep(Spec):
    """The quantity `of` at a family of arms that differ by a number.

    The family is either the list `arms` with the numbers `at`, or all members along the axis `over` of a grid. On a
    grid, `family` and `where` select members. A second family at the same numbers is `against`, or on a grid
    `against_family` and `against_where`; the two families' numbers are then compared.
    """

    of: Of  # the quantity, without its arm
    arms: Arms | None = None  # names of the arms, if they are not on a grid
    at: Numbers | None = None  # the number of each of these arms
    against: Arms | None = None  # the second family, one arm for each number
    over: Name | None = None  # axis of the grid along which the arms differ
    family: Name | None = None  # an arm that has a grid; none: all arms that have the axis
    where: dict[Name, Setting] = {}  # only members with these values on other axes
    against_family: Name | None = None  # second family on a grid; none: `family`, if 'against_where' is given
    against_where: dict[Name, Setting] | None = None  # values of the second family on other axes

    @model_validator(mode="after")
    def _arms_or_axis(self) -> Self:
        if (self.arms is None) == (self.over is None):
            raise ValueError("give either 'arms' with their numbers 'at', or 'over', an axis of the figure's grid")
        on_grids = (self.where or None, self.against_where, self.family, self.against_family)
        if self.over is None and any(one is not None for one in on_grids):
            raise ValueError("'family', 'where', 'against_family' and 'against_where' need 'over'")
        if self.over is not None and (self.at is not None or self.against is not None):
            raise ValueError("'at' and 'against' need 'arms'; on grids use 'against_family' or 'against_where'")
        for name, arms in (("arms", self.arms), ("against", self.against)):
            if arms is not None and len(arms) != len(self.at or ()):
                raise ValueError(f"{name}: {len(arms)} arms at {len(self.at or ())} numbers ('at')")
        return self

    @property
    def compared(self) -> bool:
        """Whether there is a second family."""
        return any(one is not None for one in (self.against, self.against_family, self.against_where))

    def quantity(self, arm: str = SOME) -> SeedQuantity:
        """The quantity of one arm."""
        return quantity_of(self.of, arm)

    def check(self, families: Mapping[str, Mapping[str, Member]]) -> None:
        """Check the names of families and axes, as `Reader.check`."""
        for arm in self.named_arms():
            if families.get(arm):
                raise ValueError(
                    f"sweep: '{arm}' is a family of {len(families[arm])} arms; name one, or sweep over an axis"
                )
        for field, family in (("family", self.family), ("against_family", self.against_family)):
            if family is not None and family not in families:
                raise ValueError(f"sweep.{field}: no arm with a grid is called '{family}'; {nearest(family, families)}")
        if self.over is None:
            return
        for field, against in (("where", False), ("against_where", True)):
            family, where = self.selection(against)
            if family is not None and not families[family]:
                continue  # it does not exist at this scale
            own = [members for name, members in families.items() if family in (None, name)]
            named = (("sweep.over", self.over), *((f"sweep.{field}", axis) for axis in where))
            require_axes(named, axis_values(own), family or "any grid")

    def named_arms(self) -> tuple[str, ...]:
        """The arms that it names, the main ones first."""
        others = self.quantity().arms()
        own = (*(self.arms or ()), *(self.against or ()))
        return (*own, *(arm for arm in others if arm not in (*own, SOME)))

    def selection(self, against: bool = False) -> tuple[Name | None, dict[Name, Setting]]:
        """What selects the family on a grid: (its arm, its values on other axes); with `against`, the second family."""
        if against:
            return self.against_family or self.family, self.against_where or {}
        return self.family, self.where

    def members(self, panel: str, series: Sequence[Series], against: bool = False) -> tuple[tuple[float, str], ...]:
        """(number, arm) of the family on a panel, ascending; with `against`, of the second family."""
        arms = self.against if against else self.arms
        if self.over is None:
            return tuple(sorted(zip(self.at or (), arms or (), strict=True)))
        family, where = self.selection(against)
        found: dict[tuple[float, str], None] = {}
        for one in series:
            number = one.axes.get(self.over)
            there = one.panel == panel and family in (None, one.family) and has_values(one.axes, where)
            if there and number is not None and is_number(number):
                found[float(number), one.arm] = None
        return tuple(sorted(found))

    def about(self, series: Series) -> bool:
        """Whether a series belongs to the family."""
        return any(arm == series.arm for _, arm in self.members(series.panel, (series,)))

    def panel_arms(self, panel: str, series: Sequence[Series]) -> tuple[PanelArm, ...]:
        """As `Quantity.panel_arms`."""
        families = [self.members(panel, series)] + ([self.members(panel, series, True)] if self.compared else [])
        arms = (arm for family in families for _, arm in family)
        return tuple(dict.fromkeys(place for arm in arms for place in self.quantity(arm).panel_arms(panel, series)))

    def canonical(self, panel: str, series: Sequence[Series]) -> dict[str, Any]:
        """As `Quantity.canonical`: families are lists of numbers with the indices of the arms."""
        order = self.panel_arms(panel, series)

        def family(against: bool) -> list[Any]:
            members = self.members(panel, series, against)
            return [
                [at, [order.index(place) for place in self.quantity(arm).panel_arms(panel, series)]]
                for at, arm in members
            ]

        of = content_without_arms(self.quantity(), panel, series)
        return {"of": of, "family": family(False), "against": family(True) if self.compared else None}
