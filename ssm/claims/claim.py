"""Claims as data: what a paper says, the quantity that tests it, and the region that confirms it; and where."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping
from typing import Annotated, ClassVar

from pydantic import Field, PositiveFloat, model_validator

from ssm.base.records import Time
from ssm.claims.families import Member, member_name, stands_at
from ssm.claims.quantities import QuantitySpec
from ssm.claims.quantity import FigureQuantity
from ssm.claims.series import PlannedFigure, Series
from ssm.specs.base import Prose, Setting, Spec


class Expected(Spec):
    """The region of the quantity that confirms the claim; an interval wholly outside it refutes it."""

    above: float | None = None  # the whole interval has to lie above this number
    below: float | None = None  # the whole interval has to lie below this number

    @model_validator(mode="after")
    def _region(self) -> Expected:
        if self.above is None and self.below is None:
            raise ValueError("give above, below, or both; a claim without a bound could not be refuted")
        if self.above is not None and self.below is not None and self.above >= self.below:
            raise ValueError(f"above {self.above} must be less than below {self.below}")
        return self

    def words(self) -> str:
        """The region as text, such as "> 1.5" or "0.9 to 1.1"."""
        if self.above is None:
            return f"< {self.below:g}"
        if self.below is None:
            return f"> {self.above:g}"
        return f"{self.above:g} to {self.below:g}"


class ClaimSpec(Spec):
    """One claim of one figure."""

    later: ClassVar[frozenset[str]] = frozenset({"rounding"})
    id: Annotated[str, Field(pattern=r"^[a-z0-9_]+$")]  # its name in tables: lower case, digits and _
    says: Prose  # the claim in one sentence
    paper: Prose  # what the paper reports: a number where it has one
    quantity: QuantitySpec  # the number that is judged
    expected: Expected  # the region that confirms the claim
    models: Annotated[tuple[str, ...], Field(strict=False)] | None = None  # of the panels those it is about; None: all
    ours: bool = False  # True: a check that this project adds (a control), not a statement of the paper
    # How far rounding alone moves the number from machine to machine, where that is more than its quantity says (the
    # number may be a rounding error itself). `ssm compare` needs it; no verdict rests on it.
    rounding: PositiveFloat | None = None

    @model_validator(mode="after")
    def _models_of_arms(self) -> ClaimSpec:
        if self.models is not None and isinstance(self.quantity, FigureQuantity):
            raise ValueError("'models' chooses panels of an arm, and this quantity reads none")
        return self


def claims_of_members(claim: ClaimSpec, families: Mapping[str, Mapping[str, Member]]) -> list[tuple[str, ClaimSpec]]:
    """A claim by its name; of one that names families, those of their members, each with the ones at its values.

    Args:
        families: the members of each family, by name.

    Raises:
        ValueError: several members of one family belong to the same one of another.
    """
    named = set(claim.quantity.arms()) & families.keys()
    fields = ((field, getattr(claim.quantity, field)) for field in type(claim.quantity).model_fields)
    spanned = {field: families[value] for field, value in fields if isinstance(value, str) and value in named}
    if not spanned:
        return [(claim.id, claim)]
    leading = max(spanned.values(), key=lambda members: max(len(member.places) for member in members.values()))
    found = []
    for member in leading.values():
        chosen: dict[str, str] = {}
        for field, members in spanned.items():
            fit = [name for name, other in members.items() if _agree(member.axes, other.axes)]
            if len(fit) > 1:
                of = member_name("", member.axes)
                raise ValueError(f"{field}: {len(fit)} members belong to {of}; name one, such as '{fit[0]}'")
            if fit:
                chosen[field] = fit[0]
        if len(chosen) == len(spanned):
            quantity = claim.quantity.model_copy(update=chosen)
            found.append((member_name(claim.id, member.axes), claim.model_copy(update={"quantity": quantity})))
    return found or [(claim.id, claim)]


def _agree(these: Mapping[str, Setting], those: Mapping[str, Setting]) -> bool:
    """Whether two members have the same value on every axis that both have."""
    return stands_at(these, {axis: those[axis] for axis in these.keys() & those.keys()})


class JudgedFigure(PlannedFigure):
    """A planned figure with its claims: what is judged."""

    numbers: dict[str, str] = {}  # verdict -> what decides its number, hashed: equal for the same number of two figures
    registered: dict[str, Time] = {}  # verdict -> when what it judges was registered with these seeds

    @property
    @abstractmethod
    def claims(self) -> tuple[ClaimSpec, ...]:
        """Its claims."""

    @property
    @abstractmethod
    def families(self) -> Mapping[str, Mapping[str, Member]]:
        """The name of each arm that had a grid -> its members, by name and in the grid's order."""

    @property
    def verdicts(self) -> tuple[tuple[str, ClaimSpec, str], ...]:
        """Every verdict: its name, its claim, and the panel (named model) that is judged.

        A claim is judged on the panels that have its first arm, of those that it is about, or on one that lacks it. On
        several panels a verdict is called `<claim>/<panel>`. One about a family is judged for each of its members, and
        called `<claim>[<axis>=<value>]`.
        """
        found = []
        families = self.families
        judged = (named for claim in self.claims for named in claims_of_members(claim, families))
        for name, claim in judged:
            having = (series.panel for series in self.series if claim.quantity.about(series))
            panels = list(dict.fromkeys(panel for panel in having if claim.models is None or panel in claim.models))
            panels = panels or [next((series.panel for series in self.series), "")]
            for panel in panels:
                found.append((name if len(panels) == 1 else f"{name}/{panel}", claim, panel))
        return tuple(found)

    def series_of(self, claim: ClaimSpec, panel: str) -> dict[tuple[str, str], tuple[Series, ...]]:
        """The series that a claim on a panel reads, by their panel and arm; an empty tuple where there are none."""
        places = claim.quantity.panel_arms(panel, self.series)
        return {
            place: tuple(series for series in self.series if (series.panel, series.arm) == place) for place in places
        }
