"""What `ssm extend` is asked: how a model is post-trained, and what may be kept of it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar, Literal

from pydantic import (
    NonNegativeFloat,
    PositiveFloat,
    PositiveInt,
    model_validator,
)

from ssm.specs.base import Spec
from ssm.specs.diagnosis import DiagnosisSpec
from ssm.specs.initial_states import INTERVENTIONS, InitialStateSpec
from ssm.specs.initial_states.state_passing import StatePassing
from ssm.specs.initial_states.zero import ZeroState
from ssm.specs.repairs import SPECS as REPAIRS
from ssm.specs.repairs import RepairSpec
from ssm.specs.repairs.clip_dt import ClipDt

# An optimizer step, where nobody says otherwise; the paper's reads half a million tokens (`recipe.unlike_the_paper`).
SEQUENCES = 32
MOST = 16  # windows that choose: of a quarter of all, at least `ssm.specs.diagnosis.LEAST` and at most so many
# Windows that prove a gain such as few steps of training bring: their interval reaches 1.3 standard deviations far
# (`ssm.diagnosis.intervals.reach`), and 10 steps of State Passing move the loss by 1.4 (tests/extension/coverage.py).
# Fewer windows prove a larger gain.
ENOUGH_FOR_A_GAIN = 24
FORWARD_TOKENS = 8192  # a forward pass, where nobody says otherwise: what fits a GPU beside the logits
USUAL = StatePassing()  # the intervention, where nobody says otherwise
USUAL_POLICY = USUAL.policy
STEPS = 100  # of training, where nobody says otherwise
POLICIES = (*INTERVENTIONS, *REPAIRS)  # what is trained from, or a repair that trains nothing
OF_A_STATE, OF_A_REPAIR = ("p_zero", "sigma"), ("by",)  # options of the one, and of the other
OF_TRAINING = ("steps", "lr", "batch_tokens", "micro_batch_tokens", "activation_checkpointing", "control")


class ExtensionSpec(Spec):
    """An extension, whatever the model and the text.

    As lg App. B.2 (State Passing for 100 steps, a tenth of the rate), but for smaller steps and the choice in the end.
    """

    later: ClassVar[frozenset[str]] = frozenset({"repair"})
    diagnosis: DiagnosisSpec  # before and after; context, precision and seed are those of training too
    initial_state: InitialStateSpec = USUAL
    repair: RepairSpec | None = None  # instead of training; chosen on the windows that choose, not on its own
    steps: PositiveInt = STEPS
    lr: PositiveFloat | None = None  # the peak; None: a tenth of what the model's size is pre-trained with
    batch_tokens: PositiveInt | None = None  # an optimizer step; None: SEQUENCES of the context
    micro_batch_tokens: PositiveInt | None = None  # a forward pass; None: FORWARD_TOKENS at most
    activation_checkpointing: bool = False
    control: bool = False  # train the same number of steps from zero states as well
    measure: Literal["far_perplexity", "paired_ratio"] = "far_perplexity"  # what the best checkpoint has least of
    in_context_tolerance: NonNegativeFloat = 0.02  # its perplexity in context may be so much above the original's

    @model_validator(mode="after")
    def _something_to_take_home(self) -> ExtensionSpec:
        repair = self.repair
        if repair is None:
            return self
        if repair.in_reading:
            raise ValueError(
                f"policy '{repair.kind}' is a way of reading a model, which no format of a checkpoint can hold; try it "
                "in a figure, as an arm's 'repair'"
            )
        if isinstance(repair, ClipDt) and repair.by == "layer":
            raise ValueError(f"policy '{repair.kind}': config.json has one limit of dt for all layers")
        if self.control:
            raise ValueError(f"control: policy '{repair.kind}' trains nothing to be compared with")
        return self

    @model_validator(mode="after")
    def _sane(self) -> ExtensionSpec:
        if isinstance(self.initial_state, ZeroState):
            raise ValueError("initial_state: 'zero' is no intervention; it is the control arm")
        return self

    @property
    def whole_batch_tokens(self) -> int:
        """Tokens an optimizer step."""
        return self.batch_tokens or SEQUENCES * self.diagnosis.context

    @property
    def forward_tokens(self) -> int:
        """Tokens a forward pass: as many sequences of the batch as divide it and stay within FORWARD_TOKENS."""
        if self.micro_batch_tokens is not None:
            return self.micro_batch_tokens
        context, sequences = self.diagnosis.context, self.whole_batch_tokens // self.diagnosis.context
        within = range(2, FORWARD_TOKENS // context + 1)
        return context * max((n for n in within if n <= sequences and sequences % n == 0), default=1)


def needless(policy: str, options: Mapping[str, Any]) -> str | None:
    """The first option that the policy has no use for; None: there is none.

    Args:
        policy: one of POLICIES.
        options: by name; None and False are not given.
    """
    useless = (*OF_A_STATE, *OF_TRAINING) if policy in REPAIRS else OF_A_REPAIR
    return next((name for name in useless if name in _given(options)), None)


def how(policy: str, options: Mapping[str, Any]) -> dict[str, Any]:
    """The fields of an `ExtensionSpec` that say how: what is trained from, and the training; or a repair.

    Args:
        policy, options: as of `needless`, none of them needless.
    """
    given = _given(options)
    if policy in REPAIRS:
        return {"repair": {"kind": policy, **given}}
    state = {name: given.pop(name) for name in OF_A_STATE if name in given}
    return {"initial_state": {"policy": policy, **state}, **given}


def _given(options: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in options.items() if value is not None and value is not False}
