"""Claims as data: the statement of a paper, the quantity that tests it, and the region that confirms it."""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Mapping
from typing import Annotated, ClassVar

from pydantic import Field, PositiveFloat, model_validator

from ssm.base.records import Time
from ssm.claims.families import Member, has_values, member_name
from ssm.claims.preregistration import EarlierSeeds
from ssm.claims.quantities import QuantitySpec
from ssm.claims.quantity import FigureQuantity, SeedQuantity
from ssm.claims.series import PlannedFigure, Series
from ssm.specs.base import Prose, Setting, Spec


class Expected(Spec):
    """The region that confirms a claim. An interval completely outside of it refutes the claim."""

    above: float | None = None  # the whole interval must lie above this number
    below: float | None = None  # the whole interval must lie below this number

    @model_validator(mode="after")
    def _region(self) -> Expected:
        if self.above is None and self.below is None:
            raise ValueError("give above, below, or both: without a bound nothing can refute the claim")
        if self.above is not None and self.below is not None and self.above >= self.below:
            raise ValueError(f"above {self.above} must be less than below {self.below}")
        return self

    @property
    def bounds(self) -> tuple[float, ...]:
        """One or two numbers, ascending."""
        return tuple(bound for bound in (self.above, self.below) if bound is not None)

    def words(self) -> str:
        """The region as text: "> 1.5" or "0.9 to 1.1". `of_words` gives exactly this region back."""
        sign = "< " if self.above is None else "> " if self.below is None else ""
        return sign + " to ".join(map(_exact, self.bounds))

    @classmethod
    def of_words(cls, words: str) -> Expected:
        """The region from its text.

        >>> Expected.of_words("> 1.5").above, Expected.of_words("0.9 to 1.1").below
        (1.5, 1.1)

        Raises:
            ValueError: it is not the text of a region.
        """
        sign, _, bound = words.partition(" ")
        if sign in ("<", ">"):
            return cls(below=float(bound)) if sign == "<" else cls(above=float(bound))
        above, to, below = words.partition(" to ")
        if not to:
            raise ValueError(f"'{words}' is no region; expected a text such as '> 1.5' or '0.9 to 1.1'")
        return cls(above=float(above), below=float(below))


def _exact(bound: float) -> str:
    """With six digits, as in registrations, or with all of them if the bound has more."""
    text = f"{bound:g}"
    return text if float(text) == bound else repr(bound)


class ClaimSpec(Spec):
    """One claim of one figure."""

    later: ClassVar[frozenset[str]] = frozenset({"rounding", "paper_number"})
    id: Annotated[str, Field(pattern=r"^[a-z0-9_]+$")]  # name of the claim in tables: lower case, digits and _
    says: Prose  # the claim in one sentence
    paper: Prose  # what the paper reports, with a number if it gives one
    quantity: QuantitySpec  # the number that is judged
    expected: Expected  # the region that confirms the claim
    # the models (panels) on which the claim is judged; none: all panels
    models: Annotated[tuple[str, ...], Field(strict=False)] | None = None
    ours: bool = False  # true: a check added by this project, such as a control; false: a statement of the paper
    # largest difference between machines that rounding can explain; needed only if it exceeds the quantity's default.
    # `ssm compare` uses it; verdicts do not
    rounding: PositiveFloat | None = None
    paper_number: float | None = None  # the paper's value of the quantity, if it reports one

    @model_validator(mode="after")
    def _models_of_arms(self) -> ClaimSpec:
        if self.models is not None and isinstance(self.quantity, FigureQuantity):
            raise ValueError("'models' selects panels, but this quantity belongs to no panel; leave it out")
        return self

    @model_validator(mode="after")
    def _a_region_that_can_confirm_and_refute(self) -> ClaimSpec:
        if not isinstance(self.quantity, SeedQuantity):
            return self
        low, high = self.quantity.possible
        above = -math.inf if self.expected.above is None else self.expected.above
        below = math.inf if self.expected.below is None else self.expected.below
        if above >= high or below <= low or (above < low and high < below):
            what = "contains no" if above >= high or below <= low else "contains every"
            possible = f"possible number ({low:g} to {high:g}), so that the claim says nothing"
            raise ValueError(f"expected: the region {self.expected.words()} {what} {possible}")
        bounds = {"above": above, "below": below}
        at_limit = [key for key, bound in bounds.items() if bound in (low, high)] if math.isfinite(high - low) else []
        if at_limit:
            # A mean is inside as soon as one seed is, so no interval of means can be outside.
            one_is_left = math.isfinite(above) and math.isfinite(below) and len(at_limit) == 1
            advice = f"leave '{at_limit[0]}' out" if one_is_left else "choose a bound between the limits"
            raise ValueError(
                f"expected: {bounds[at_limit[0]]:g} is a limit of the possible numbers ({low:g} to {high:g}), so that "
                f"no interval can be beyond this bound; {advice}"
            )
        return self


def claims_of_members(claim: ClaimSpec, families: Mapping[str, Mapping[str, Member]]) -> list[tuple[str, ClaimSpec]]:
    """The claims that one claim of a figure file becomes: one for each member of the families that it names.

    Members are matched by the values of their axes. A claim that names no family is returned unchanged.

    Args:
        families: the members of each family, by name.

    Returns:
        (name, claim) pairs.

    Raises:
        ValueError: several members of one family match one member of another family.
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
                axes = member_name("", member.axes)
                raise ValueError(f"{field}: {len(fit)} members match {axes}; name one of them, such as '{fit[0]}'")
            if fit:
                chosen[field] = fit[0]
        if len(chosen) == len(spanned):
            quantity = claim.quantity.model_copy(update=chosen)
            found.append((member_name(claim.id, member.axes), claim.model_copy(update={"quantity": quantity})))
    return found or [(claim.id, claim)]


def _agree(these: Mapping[str, Setting], those: Mapping[str, Setting]) -> bool:
    """Whether two members agree on all axes that both of them have."""
    return has_values(these, {axis: those[axis] for axis in these.keys() & those.keys()})


class JudgedFigure(PlannedFigure):
    """A planned figure with the claims that are judged on it."""

    later: ClassVar[frozenset[str]] = frozenset({"earlier"})
    numbers: dict[str, str] = {}  # verdict -> hash of what determines its number; figures with the same number share it
    registered: dict[str, Time] = {}  # verdict -> when its claim was registered with these seeds
    earlier: Annotated[tuple[EarlierSeeds, ...], Field(strict=False)] = ()  # seeds that were read before

    @property
    @abstractmethod
    def claims(self) -> tuple[ClaimSpec, ...]:
        """The claims, in the order of the figure file."""

    @property
    @abstractmethod
    def families(self) -> Mapping[str, Mapping[str, Member]]:
        """Name of each arm with a grid -> its members by name, in the order of the grid."""

    @property
    def verdicts(self) -> tuple[tuple[str, ClaimSpec, str], ...]:
        """(name, claim, panel) of every verdict.

        A claim is judged on each panel that has its first arm, restricted to the claim's `models`. If there is no such
        panel, it is judged on the first one, where it is "not decided". An added check without any model at this scale
        is left out. Names: `<claim>` on one panel, `<claim>/<panel>` on several. A family has a verdict for each
        member: `<claim>[<axis>=<value>]`.
        """
        found = []
        families = self.families
        judged = (named for claim in self.claims for named in claims_of_members(claim, families))
        for name, claim in judged:
            if claim.ours and claim.models == ():
                continue
            having = (series.panel for series in self.series if claim.quantity.about(series))
            panels = list(dict.fromkeys(panel for panel in having if claim.models is None or panel in claim.models))
            panels = panels or [next((series.panel for series in self.series), "")]
            for panel in panels:
                found.append((name if len(panels) == 1 else f"{name}/{panel}", claim, panel))
        return tuple(found)

    def base_models(self, claim: ClaimSpec, panel: str) -> frozenset[str]:
        """The models that a claim reads, as they were trained first: ids of initial weights.

        Arms that continue from the same weights share them. So claims with the same base models are not independent.
        """
        places = self.series_of(claim, panel).values()
        return frozenset(one.origin or one.run for series in places for one in series)

    def series_of(self, claim: ClaimSpec, panel: str) -> dict[tuple[str, str], tuple[Series, ...]]:
        """(panel, arm) -> the series that a claim reads; an empty tuple for an arm without series."""
        places = claim.quantity.panel_arms(panel, self.series)
        return {
            place: tuple(series for series in self.series if (series.panel, series.arm) == place) for place in places
        }
