"""What the specs of all mixers share: checks against the model's width, and where the system stands among others."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Annotated, ClassVar, Literal

from pydantic import Field

from ssm.specs.base import Spec

Range = Annotated[tuple[float, float], Field(strict=False)]
Decay = Literal[
    "none", "constant", "scalar per head", "by channel", "by state", "by channel and state", "by key", "gate", "cache"
]


@dataclass(frozen=True)
class Taxonomy:
    """One system's row in the tables of ls (Table 2) and bn (Appendix B)."""

    system: str  # its published name
    paper: str  # authors and year
    scan: Literal["diagonal_scan", "selective_scan", "gated_scan", "none"]  # the recurrence that carries it
    decay: Decay  # what one decay is shared by
    input_dependent: bool  # whether the decay is a function of the input
    complex: bool  # whether the state is
    recurrence: str  # its update and readout in bn's letters: A_t, b_t, c_t


class MixerSpecBase(Spec):
    """The description of one system."""

    beside: ClassVar[frozenset[str]] = frozenset({"chunk"})  # tokens per chunk of a scan
    taxonomy: ClassVar[Taxonomy]
    kind: str

    def check(self, d_model: int) -> None:
        """Whether it fits a model of this width.

        Raises:
            ValueError: which field does not, and what was expected.
        """

    def heads(self, d_model: int) -> int:
        """Heads of the memory: its second axis."""
        raise NotImplementedError

    @property
    def grows(self) -> bool:
        """Whether the state becomes longer with every token, without an end."""
        return False

    def h_heads(self, d_model: int) -> int:
        """How many of them, from the first, are the h_t of `taxonomy`: all, where nothing else is remembered."""
        return self.heads(d_model)

    def state_shape(self, d_model: int) -> tuple[int, ...]:
        """The memory of one sequence, (heads, ...); a complex one ends in 2, an attention's cache counts one token."""
        raise NotImplementedError


def check_range(name: str, pair: tuple[float, float], below: float = math.inf) -> None:
    """Whether the pair is 0 < low <= high < below.

    Raises:
        ValueError: what was expected, and the pair.
    """
    low, high = pair
    if not 0 < low <= high < below:
        limit = "" if below == math.inf else f" < {below:g}"
        raise ValueError(f"{name} must be 0 < low <= high{limit}, got ({low}, {high})")
