"""Claims as data: what a paper says, the quantity that tests it, and the region that confirms it."""

from __future__ import annotations

from typing import Annotated, ClassVar

from pydantic import Field, PositiveFloat, model_validator

from ssm.specs.base import Prose, Spec
from ssm.specs.quantities import QuantitySpec
from ssm.specs.quantities.base import FigureQuantity


class Expected(Spec):
    """The region of the quantity that confirms the claim; an interval wholly outside it refutes it."""

    above: float | None = None
    below: float | None = None

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
    id: Annotated[str, Field(pattern=r"^[a-z0-9_]+$")]
    says: Prose  # the claim in one sentence
    paper: Prose  # what the paper reports: a number where it has one
    quantity: QuantitySpec
    expected: Expected
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
