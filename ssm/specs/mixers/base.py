"""What the specs of all mixers share: checks against the model's width, and where the system stands among others."""

from __future__ import annotations

import math
from abc import abstractmethod
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar, Literal

from pydantic import Field

from ssm.base.discovery import Registry
from ssm.specs.sublayer import ActivationMemory, SublayerSpec

SPECS: Registry[type[MixerSpecBase]] = Registry("ssm.specs.mixers")  # those that stand in this folder

Range = Annotated[tuple[float, float], Field(strict=False)]
Decay = Literal[
    "none", "constant", "scalar per head", "by channel", "by state", "by channel and state", "by key", "gate", "cache"
]
RECURRENCE = 6  # operations a number of the memory and token
SEGMENT_TABLES = 5  # tables of a convolution-like scan: numbers of the memory times tokens of a segment


@dataclass(frozen=True)
class Taxonomy:
    """One system's row in the tables of ls (Table 2) and bn (Appendix B)."""

    system: str  # its published name
    paper: str  # authors and year
    scan: Literal["diagonal_scan", "selective_scan", "gated_scan", "delta_scan", "none"]  # what carries it
    decay: Decay  # what one decay is shared by
    complex: bool  # whether the state is
    recurrence: tuple[str, ...]  # lines of LaTeX: its update and readout in bn's letters A_t, b_t, c_t

    @property
    def diagonal(self) -> bool:
        """Whether it is linear in its state and A_t a decay of every number of it: the delta rule's is a matrix."""
        return self.scan not in ("none", "delta_scan")


class MixerSpecBase(SublayerSpec):
    """The description of one system."""

    not_hashed: ClassVar[frozenset[str]] = frozenset({"chunk"})  # tokens per chunk of a scan
    taxonomy: ClassVar[Taxonomy]
    has_a: ClassVar[bool] = False  # whether its decay is exp(dt A), with A in a weight A_log
    has_dt_limit: ClassVar[bool] = False  # whether its dt has limits, in a field dt_limit

    @classmethod
    def __pydantic_init_subclass__(cls, **kwargs: Any) -> None:
        super().__pydantic_init_subclass__(**kwargs)
        SPECS.add_spec(cls)

    def check(self, d_model: int) -> None:
        """Whether it fits a model of this width.

        Raises:
            ValueError: which field does not, and what was expected.
        """

    def at(self, layer: int) -> MixerSpecBase:
        """What it is as this layer (counted from 0): another one where the first layer differs from the rest."""
        return self

    @property
    def follows(self) -> str | None:
        """The kind of mixer whose values it needs of the first layer; None: it needs none."""
        return None

    @abstractmethod
    def heads(self, d_model: int) -> int:
        """Heads of the recurrent state: its second axis."""

    @property
    def grows(self) -> bool:
        """Whether the state becomes longer with every token, without an end."""
        return False

    @property
    def receptive_field(self) -> int:
        """Tokens, the present one and those before it, that enter the recurrent state together: by a convolution or
        token shift.
        """
        return 1

    def h_heads(self, d_model: int) -> int:
        """How many of them, from the first, are the h_t of `taxonomy`: all, where nothing else is remembered."""
        return self.heads(d_model)

    @abstractmethod
    def state_shape(self, d_model: int) -> tuple[int, ...]:
        """The recurrent state of one sequence, (heads, ...); a complex one ends in 2, an attention's cache counts one
        token.
        """

    def recurrent_state_numbers(self, d_model: int) -> int:
        """Numbers of the recurrent state."""
        return math.prod(self.state_shape(d_model))

    def state_operations(self, d_model: int, context: int) -> float:
        """Floating-point operations a token, on average over `context` tokens, beside the two of every parameter.

        A recurrence has six a number of the memory: decay, addition of the product, product with the readout.
        """
        return RECURRENCE * self.recurrent_state_numbers(d_model)


def check_range(name: str, pair: tuple[float, float], below: float = math.inf) -> None:
    """Whether the pair is 0 < low <= high < below.

    Raises:
        ValueError: what was expected, and the pair.
    """
    low, high = pair
    if not 0 < low <= high < below:
        limit = "" if below == math.inf else f" < {below:g}"
        raise ValueError(f"{name} must be 0 < low <= high{limit}, got ({low}, {high})")


def activation_memory_of_segments(a_token: float, states: int, segment: int, workspace: float) -> ActivationMemory:
    """What a scan keeps that works through segments as convolutions (S4D, DSS, H3), with what is around it.

    Args:
        a_token: numbers kept of every token outside the scan.
        states: numbers of the memory.
        segment: tokens from one kept state to the next.
        workspace: as in `ActivationMemory`.
    """
    return ActivationMemory(a_token, SEGMENT_TABLES * states * segment, 3 * states, segment, workspace, bfloat16=1.0)
