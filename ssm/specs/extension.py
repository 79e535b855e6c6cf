"""The settings of `ssm extend`."""

from __future__ import annotations

from collections.abc import Mapping
from math import ceil
from typing import Any, ClassVar, Literal

from pydantic import NonNegativeFloat, PositiveFloat, PositiveInt, model_validator

from ssm.base.errors import ConfigError, nearest
from ssm.specs.base import Spec
from ssm.specs.diagnosis import LEAST, DiagnosisSpec
from ssm.specs.initial_states import SPECS as INITIAL_STATES
from ssm.specs.initial_states import InitialStateSpec
from ssm.specs.initial_states.state_passing import StatePassing
from ssm.specs.initial_states.zero import ZeroState
from ssm.specs.repairs import SPECS as REPAIRS
from ssm.specs.repairs import RepairSpec

BATCH_CONTEXTS = 32  # default batch, in contexts; lg uses half a million tokens (`recipe.unlike_the_paper`)
HALF = 0.5  # largest held-out share of a text, if the user gives none
FEWEST = ceil(2 * LEAST / HALF)  # windows of a text that is trained on and measured
# A quarter of the held-out windows chooses the checkpoint: at least `ssm.specs.diagnosis.LEAST`, at most this number.
MOST_CHOICE_WINDOWS = 16
# Windows that are enough to prove the gain of a short training. Their interval reaches 1.3 standard deviations
# (`ssm.diagnosis.intervals.reach`), and 10 steps of State Passing change the loss by 1.4 (tests/extension/coverage.py).
# A larger gain needs fewer windows.
ENOUGH_FOR_A_GAIN = 24
FORWARD_TOKENS = 8192  # default maximum for a forward pass: it fits a GPU together with the logits
USUAL = StatePassing()  # default intervention
USUAL_POLICY = USUAL.policy
STEPS = 100  # default training steps
IN_CONTEXT_TOLERANCE = 0.02  # default
STORED_REPAIRS = tuple(name for name, repair in REPAIRS.items() if repair.unstored is None)  # in files
STATE_OPTIONS = ("p_zero", "sigma")  # of an initial state
INTERVENTIONS = tuple(  # initial states whose required fields have options
    name
    for name, state in INITIAL_STATES.items()
    if name != "zero" and {*STATE_OPTIONS} >= {key for key, field in state.model_fields.items() if field.is_required()}
)
POLICIES = (*INTERVENTIONS, *REPAIRS)  # initial states for post-training, and repairs without training
REPAIR_OPTIONS = ("by",)
TRAINING_OPTIONS = ("steps", "lr", "batch_tokens", "micro_batch_tokens", "activation_checkpointing", "control")
POLICY_OPTIONS = (*STATE_OPTIONS, *REPAIR_OPTIONS, *TRAINING_OPTIONS)
OPTIONS = (*POLICY_OPTIONS, "measure", "in_context_tolerance", "context")  # keys that `ssm extend` has as options

Measure = Literal["far_perplexity", "paired_ratio"]
MEASURE: Measure = "far_perplexity"  # default


class ExtensionSpec(Spec):
    """The settings of an extension, without the model and the text.

    The defaults follow lg App. B.2: State Passing for 100 steps at a tenth of the learning rate. Different are the
    smaller batch and the choice among checkpoints at the end.
    """

    later: ClassVar[frozenset[str]] = frozenset({"repair"})
    diagnosis: DiagnosisSpec  # made before and after; training has the same context, precision and seed
    initial_state: InitialStateSpec = USUAL
    repair: RepairSpec | None = None  # instead of training; its numbers are chosen on the held-out windows that choose
    steps: PositiveInt = STEPS
    lr: PositiveFloat | None = None  # peak; None: a tenth of the pre-training rate for models of this size
    batch_tokens: PositiveInt | None = None  # in an optimizer step; None: BATCH_CONTEXTS contexts
    micro_batch_tokens: PositiveInt | None = None  # in a forward pass; None: at most FORWARD_TOKENS
    activation_checkpointing: bool = False
    control: bool = False  # also train the same number of steps from zero states
    measure: Measure = MEASURE  # the best checkpoint has the lowest value
    in_context_tolerance: NonNegativeFloat = IN_CONTEXT_TOLERANCE  # allowed relative increase of perplexity in context

    @model_validator(mode="after")
    def _repair_can_be_exported(self) -> ExtensionSpec:
        repair = self.repair
        if repair is None:
            return self
        if repair.unstored is not None:
            raise ValueError(f"policy '{repair.kind}' {repair.unstored}; use it in a figure, as the 'repair' of an arm")
        if self.control:
            raise ValueError(f"control: policy '{repair.kind}' trains nothing, so it needs no control")
        return self

    @model_validator(mode="after")
    def _intervenes(self) -> ExtensionSpec:
        if isinstance(self.initial_state, ZeroState):
            raise ValueError("initial_state: 'zero' is no intervention; it is the control arm")
        return self

    @property
    def whole_batch_tokens(self) -> int:
        """Tokens in an optimizer step."""
        return self.batch_tokens or BATCH_CONTEXTS * self.diagnosis.context

    @property
    def forward_tokens(self) -> int:
        """Tokens in a forward pass: the most sequences that divide the batch, with at most FORWARD_TOKENS tokens."""
        if self.micro_batch_tokens is not None:
            return self.micro_batch_tokens
        context, sequences = self.diagnosis.context, self.whole_batch_tokens // self.diagnosis.context
        within = range(2, FORWARD_TOKENS // context + 1)
        return context * max((n for n in within if n <= sequences and sequences % n == 0), default=1)


def known_policy(name: str) -> str:
    """The name of a policy. `ExtensionSpec` says why it refuses zero, and repairs that no checkpoint can hold.

    Raises:
        ConfigError: there is no such policy, or it has a required field without an option.
    """
    if name not in ("zero", *POLICIES):
        if name in INITIAL_STATES:
            problem = "a field that it requires has no option; use it in a figure, as 'initial_state' of an arm"
        else:
            problem = f"unknown; {nearest(name, (*INTERVENTIONS, *STORED_REPAIRS))}"
        raise ConfigError(f"--policy {name}: {problem}")
    return name


def unused_option(policy: str, options: Mapping[str, Any]) -> tuple[str, str] | None:
    """The first option that the policy does not use, and the end of a message: why. None: it uses all.

    Args:
        policy: one of POLICIES.
        options: name -> value; options with None or False count as not given.
    """
    if policy in REPAIRS:
        used = {*REPAIRS[policy].model_fields}
    else:
        used = {*INITIAL_STATES[policy].model_fields, *TRAINING_OPTIONS}
    for name in _given(options):
        if name not in used:
            return name, ": it trains nothing" if policy in REPAIRS and name not in REPAIR_OPTIONS else ""
    return None


def policy_fields(policy: str, options: Mapping[str, Any]) -> dict[str, Any]:
    """The fields of an `ExtensionSpec` for a policy: initial state and training, or repair.

    Args:
        policy, options: as in `unused_option`, without unused options.
    """
    given = _given(options)
    if policy in REPAIRS:
        return {"repair": {"kind": policy, **given}}
    state = {name: given.pop(name) for name in STATE_OPTIONS if name in given}
    return {"initial_state": {"policy": policy, **state}, **given}


def _given(options: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in options.items() if value is not None and value is not False}
