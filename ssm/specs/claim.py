"""Claims as data: what a paper says, the quantity that tests it, and the region that confirms it."""

from __future__ import annotations

from typing import Annotated, ClassVar, Literal, Self

from pydantic import Field, PositiveFloat, model_validator

from ssm.specs.base import Spec

Distance = Literal["total_variation", "jensen_shannon", "one_minus_cosine"]


class Quantity(Spec):
    """What tests a claim."""

    reads: ClassVar[tuple[str, ...]]  # the kinds of tables that decide the number
    definition: ClassVar[bool] = False  # a property of what was built: no experiment, no chance in it


class ArmQuantity(Quantity):
    """A number per seed of one arm; with `against`, its ratio (or difference) to the same number of another arm.

    Both are of the panel that is judged, or `against` of the panel of another named model.
    """

    arm: str
    against: str | None = None
    against_model: str | None = None

    @model_validator(mode="after")
    def _a_model_of_an_arm(self) -> Self:
        if self.against_model is not None and self.against is None:
            raise ValueError("'against_model' needs 'against', the arm of that model")
        return self


class RestartRatio(ArmQuantity):
    """Perplexity with the full history / perplexity of a model restarted T/2..T tokens before, on the same targets.

    `restarted` names the arm that is restarted: the base gives Rbase, nothing (the arm itself) gives Rown.
    """

    kind: Literal["restart_ratio"] = "restart_ratio"
    reads: ClassVar[tuple[str, ...]] = ("position_loss", "restart_loss")
    times_context: PositiveFloat  # read at [3/4 kT, kT), T being the arm's training context
    restarted: str | None = None


class PerplexityGrowth(ArmQuantity):
    """Position-wise perplexity at [3/4 kT, kT) / the same at [T/2, T)."""

    kind: Literal["perplexity_growth"] = "perplexity_growth"
    reads: ClassVar[tuple[str, ...]] = ("position_loss",)
    times_context: PositiveFloat


class PerplexityAt(ArmQuantity):
    """Position-wise perplexity at [3/4 kT, kT)."""

    kind: Literal["perplexity_at"] = "perplexity_at"
    reads: ClassVar[tuple[str, ...]] = ("position_loss",)
    times_context: PositiveFloat


class StateNormGrowth(ArmQuantity):
    """Mean norm of the whole state at kT / at T."""

    kind: Literal["state_norm_growth"] = "state_norm_growth"
    reads: ClassVar[tuple[str, ...]] = ("state_statistics",)
    times_context: PositiveFloat


class DriftingHeads(ArmQuantity):
    """The fraction of all heads whose state's standard deviation grows by more than `factor` from T to kT."""

    kind: Literal["drifting_heads"] = "drifting_heads"
    reads: ClassVar[tuple[str, ...]] = ("state_statistics",)
    times_context: PositiveFloat
    factor: PositiveFloat = 2.0


class Remembrance(ArmQuantity):
    """Mean Effective Remembrance at t = length - kept * T: the weight of all but the last `kept` contexts."""

    kind: Literal["remembrance"] = "remembrance"
    reads: ClassVar[tuple[str, ...]] = ("effective_remembrance",)
    distance: Distance = "total_variation"
    kept_contexts: PositiveFloat = 1.0


class ShapeDifference(Quantity):
    """How far the remembrance curves of one arm under two distances lie apart, each taken from its range to [0, 1].

    The largest absolute difference over all t between the means over sequences, each less its minimum and over its
    range: 0 for curves that differ in level and scale alone.
    """

    kind: Literal["shape_difference"] = "shape_difference"
    reads: ClassVar[tuple[str, ...]] = ("effective_remembrance",)
    arm: str
    distance: Distance
    with_distance: Distance = "total_variation"


class LengthExcess(ArmQuantity):
    """Largest loss past t* minus the loss at t*, nats (lg Def. 3.2; 0 or less: it length-generalizes)."""

    kind: Literal["length_excess"] = "length_excess"
    reads: ClassVar[tuple[str, ...]] = ("length_class",)


class ParameterRatio(Quantity):
    """Parameters counted here / parameters that the paper states, for one named model."""

    kind: Literal["parameter_ratio"] = "parameter_ratio"
    reads: ClassVar[tuple[str, ...]] = ("model_size",)
    definition: ClassVar[bool] = True
    model: str


class SystemProperty(Quantity):
    """A property of one named model's recurrence as measured on its module: 1 if it has it, 0 if not.

    selective: what remains of an initial state depends on the input. linear: it is proportional to that state.
    identity: it is that state, whole (A_t = I). constant: the state is as large after many tokens as after one.
    """

    kind: Literal["system_property"] = "system_property"
    reads: ClassVar[tuple[str, ...]] = ("taxonomy",)
    definition: ClassVar[bool] = True
    model: str
    property: Literal["selective", "linear", "identity", "constant"]


class CostExponent(Quantity):
    """p of cost ~ T^p, the slope over all measured lengths on logarithmic scales, for one named model (ls Table 1)."""

    kind: Literal["cost_exponent"] = "cost_exponent"
    reads: ClassVar[tuple[str, ...]] = ("cost",)
    model: str
    cost: Literal["training_step", "training_memory", "decoding_step", "state"]


QuantitySpec = Annotated[
    RestartRatio
    | PerplexityGrowth
    | PerplexityAt
    | StateNormGrowth
    | DriftingHeads
    | Remembrance
    | ShapeDifference
    | LengthExcess
    | ParameterRatio
    | SystemProperty
    | CostExponent,
    Field(discriminator="kind"),
]


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

    id: Annotated[str, Field(pattern=r"^[a-z0-9_]+$")]
    says: str  # the claim in one sentence
    paper: str  # what the paper reports: a number where it has one
    quantity: QuantitySpec
    expected: Expected
    models: Annotated[tuple[str, ...], Field(strict=False)] | None = None  # of the panels those it is about; None: all
    ours: bool = False  # True: a check that this project adds (a control), not a statement of the paper

    @model_validator(mode="after")
    def _models_of_arms(self) -> ClaimSpec:
        if self.models is not None and not self.arms():
            raise ValueError("'models' chooses panels of an arm, and this quantity reads none")
        return self

    def arms(self) -> tuple[str, ...]:
        """The arms, or families of arms, that the claim reads."""
        names = (getattr(self.quantity, field, None) for field in ("arm", "against", "restarted"))
        return tuple(name for name in names if name is not None)
