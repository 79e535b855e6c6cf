"""The base class for specs of mixers: checks, sizes, costs, and the row of the system in the taxonomy."""

from __future__ import annotations

import math
from abc import abstractmethod
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar, Literal, Self, get_args

from pydantic import Field, model_validator

from ssm.base.discovery import Registry, RegistryError
from ssm.base.errors import nearest
from ssm.specs.base import PluginSpec
from ssm.specs.sublayer import ActivationMemory, SublayerSpec

SPECS: Registry[type[MixerSpecBase]] = Registry("ssm.specs.mixers")

Range = Annotated[tuple[float, float], Field(strict=False)]
Scan = Literal["diagonal_scan", "selective_scan", "gated_scan", "delta_scan", "none"]
Decay = Literal[
    "none", "constant", "scalar per head", "by channel", "by state", "by channel and state", "by key", "gate", "cache"
]
RECURRENCE = 6  # operations for each state number and token
SEGMENT_TABLES = 5  # tables of a convolution-like scan, each of (state numbers) x (tokens of a segment)


@dataclass(frozen=True)
class Taxonomy:
    """One row of the taxonomies of ls (Table 2) and bn (Appendix B).

    Raises:
        RegistryError: the scan or the decay is unknown.
    """

    system: str  # published name
    paper: str  # authors and year
    scan: Scan  # operation for the states
    decay: Decay  # the parts of the state that have their own decay
    complex: bool  # whether the state is complex
    recurrence: tuple[str, ...]  # lines of LaTeX: update and readout, with bn's letters A_t, b_t, c_t

    def __post_init__(self) -> None:
        for field, known in (("scan", get_args(Scan)), ("decay", get_args(Decay))):
            value = getattr(self, field)
            if value not in known:
                raise RegistryError(f"taxonomy of {self.system}: unknown {field} '{value}'; {nearest(value, known)}")

    @property
    def diagonal(self) -> bool:
        """Whether the recurrence is linear and A_t is diagonal. In the delta rule, A_t is a full matrix."""
        return self.scan not in ("none", "delta_scan")

    @property
    def by_step(self) -> bool:
        """Whether the recurrence is not linear, so that no scan exists and steps run one after another."""
        return self.scan == "none" and self.decay == "gate"


class MixerSpecBase(SublayerSpec, PluginSpec):
    """One system, such as Mamba-2."""

    registry: ClassVar[Registry[Any]] = SPECS
    not_hashed: ClassVar[frozenset[str]] = frozenset({"chunk"})  # tokens in a chunk of a scan
    taxonomy: ClassVar[Taxonomy]
    range_below: ClassVar[float] = math.inf  # bound of the fields *_range
    has_dt_limit: ClassVar[bool] = False  # whether dt has limits, in a field dt_limit
    has_map: ClassVar[bool] = True  # whether the outputs of each head are weighted sums of its values
    has_bc: ClassVar[bool] = False  # whether B and C are linear maps of the input (mi's W_B and W_C)
    averages: ClassVar[bool] = False  # whether the state is a running average, so that A_t is a weight and not a decay

    @model_validator(mode="after")
    def _ranges_ascend(self) -> Self:
        for name in type(self).model_fields:
            pair = getattr(self, name)
            if name.endswith("_range") and pair is not None:
                check_range(name, pair, self.range_below)
        return self

    @property
    def has_a(self) -> bool:
        """Whether the decay is exp(dt A), with a weight A_log. A is -exp(A_log), unless `Mimetic.a` is set."""
        return False

    @property
    def has_mask(self) -> bool:
        """Whether the map is a product of queries, keys and a mask (mi eq. 8)."""
        return self.has_map and self.taxonomy.scan != "delta_scan"

    def check(self, d_model: int) -> None:
        """Check the fields against the width of the model.

        Raises:
            ValueError: the field that does not fit, and what was expected.
        """

    def at(self, layer: int) -> MixerSpecBase:
        """The mixer of this layer (from 0), for systems in which the first layer differs from the others."""
        return self

    @property
    def follows(self) -> str | None:
        """The kind that the first layer must have, because this mixer reads its values. None: any."""
        return None

    @abstractmethod
    def heads(self, d_model: int) -> int:
        """Heads of the recurrent state, which are its second axis."""

    @property
    def grows(self) -> bool:
        """Whether the state grows with every token, without a limit."""
        return False

    @property
    def has_normalizer(self) -> bool:
        """Whether outputs are divided by a sum over earlier tokens that is not a part of the recurrent state."""
        return False

    @property
    def receptive_field(self) -> int:
        """Number of tokens, up to the current one, that enter the recurrent state together by convolution or shift."""
        return 1

    def h_heads(self, d_model: int) -> int:
        """Number of heads, from the first, that are the h_t of `taxonomy`."""
        return self.heads(d_model)

    @abstractmethod
    def state_shape(self, d_model: int) -> tuple[int, ...]:
        """Shape of the recurrent state of one sequence, (heads, ...).

        The last axis of a complex state is 2. For the cache of attention, it is the shape for one token.
        """

    def recurrent_state_numbers(self, d_model: int) -> int:
        """Size of the recurrent state."""
        return math.prod(self.state_shape(d_model))

    def input_numbers(self, d_model: int) -> int:
        """Size of the rest of the state: the last inputs of convolutions and token shifts."""
        return 0

    def state_numbers(self, d_model: int, context: int) -> int:
        return self.recurrent_state_numbers(d_model) + self.input_numbers(d_model)

    def state_operations(self, d_model: int, context: int) -> float:
        """Floating-point operations for the state in each token, on average over `context` tokens.

        The two operations for each parameter are not included. A recurrence has six for each state number: decay,
        addition of the product, and product with the readout.
        """
        return RECURRENCE * self.recurrent_state_numbers(d_model)

    def pass_operations(self, d_model: int, context: int) -> float:
        """Operations of a forward pass that do not depend on its tokens, for a sequence of `context` tokens before."""
        return 0.0


def check_range(name: str, pair: tuple[float, float], below: float = math.inf) -> None:
    """Check that 0 < low <= high < below.

    Raises:
        ValueError: with the expected order, and the pair.
    """
    low, high = pair
    if not 0 < low <= high < below:
        limit = "" if below == math.inf else f" < {below:g}"
        raise ValueError(f"{name} must be 0 < low <= high{limit}, got ({low}, {high})")


def activation_memory_of_segments(a_token: float, states: int, segment: int, workspace: float) -> ActivationMemory:
    """Activation memory of S4D, DSS and H3, whose scans compute segments as convolutions.

    Args:
        a_token: numbers saved for every token outside the scan.
        states: size of the recurrent state.
        segment: tokens between saved states.
        workspace: as in `ActivationMemory`.
    """
    return ActivationMemory(a_token, SEGMENT_TABLES * states * segment, 3 * states, segment, workspace, bfloat16=1.0)
