"""What the specs of a block's two sublayers share, mixer and ffn: what a sublayer costs is its own answer, from
arithmetic.

Whoever asks (ssm/plan) knows no system by name. Counts of parameters and of a state's numbers are exact: tests build
every system and compare. What is kept for the backward pass is checked against torch's allocator.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from math import ceil

from ssm.specs.base import Spec


@dataclass(frozen=True)
class ActivationMemory:
    """Activation memory: numbers that one sublayer keeps for the backward pass, of every token and once for all.

    Its input and what the norm before it makes of that are not among them. It is meant for the scans' backends that
    keep states at the borders of chunks, all but `reference`.

    Attributes:
        a_token: of every token.
        once: whatever the number of tokens.
        border: of every chunk of a sequence, of `chunk` tokens or fewer: the state at its border.
        workspace: of a mixer: what its layer holds besides, going backward, as a share of all that the layer keeps.
        bfloat16: of float32's bytes, where bfloat16 is asked for: scans, and the norms beside them, keep float32.
        zeros: whether the border before the first chunk is kept although it is zero, as it is without an initial state.
    """

    a_token: float
    once: float = 0.0
    border: float = 0.0
    chunk: int = 1
    workspace: float = 0.05
    bfloat16: float = 0.75
    zeros: bool = True

    def of(self, sequences: int, context: int, from_zero: bool) -> float:
        """The numbers kept of so many sequences of `context` tokens, which start from the zero state or from others."""
        borders = ceil(context / self.chunk) - (from_zero and not self.zeros)
        return sequences * (self.a_token * context + self.border * borders) + self.once


class SublayerSpec(Spec, ABC):
    """The description of one sublayer of a block. `d_model` is the model's width D."""

    kind: str

    @abstractmethod
    def parameters(self, d_model: int) -> int:
        """Parameters in one layer, those of the norm before it not counted."""

    def idle(self, d_model: int) -> int:
        """Those of them that a token passes by: of the experts that are not chosen for it."""
        return 0

    @abstractmethod
    def state_numbers(self, d_model: int, context: int) -> int:
        """Numbers of one sequence's state in one layer behind `context` tokens: all of it, last inputs too."""

    @abstractmethod
    def activation_memory(self, d_model: int) -> ActivationMemory:
        """The activation memory of one layer: what it keeps for the backward pass."""


def linear(inputs: int, outputs: int, bias: bool = False) -> int:
    """Parameters of a projection.

    >>> linear(3, 5, bias=True)
    20
    """
    return inputs * outputs + bias * outputs


def low_rank(inputs: int, rank: int, outputs: int) -> int:
    """Parameters of a projection through `rank` dimensions, without biases.

    >>> low_rank(8, 2, 5)
    26
    """
    return rank * (inputs + outputs)


def short_convolution(channels: int, width: int) -> int:
    """Parameters of a causal convolution by channel, with a bias.

    >>> short_convolution(10, 4)
    50
    """
    return channels * (width + 1)


def last_inputs(channels: int, width: int) -> int:
    """Numbers of the state of a causal convolution by channel: the inputs that later outputs still need.

    >>> last_inputs(10, 4)
    30
    """
    return channels * (width - 1)
