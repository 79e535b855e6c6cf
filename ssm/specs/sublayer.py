"""The base class for specs of mixers and ffns: each spec computes its own costs.

So ssm/plan needs no table of systems. Numbers of parameters and state numbers are exact: tests build every system and
compare. The estimate of activation memory is compared with torch's allocator.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from math import ceil

from ssm.specs.base import Spec


@dataclass(frozen=True)
class ActivationMemory:
    """Count of numbers that a sublayer saves for the backward pass.

    The sublayer's input and the output of the norm before it are not counted. The count is for backends of the scans
    that save states at the borders of chunks: all but `reference`.

    Attributes:
        a_token: for every token.
        once: independent of the number of tokens.
        border: for every chunk of a sequence, the state at its border.
        chunk: tokens in a chunk.
        workspace: further memory of a mixer's layer during the backward pass, as a fraction of all that it saves.
        bfloat16: bytes under bfloat16 autocast, as a fraction of those in float32: scans and norms stay in float32.
        zeros: whether the border before the first chunk is saved when there is no initial state.
    """

    a_token: float
    once: float = 0.0
    border: float = 0.0
    chunk: int = 1
    workspace: float = 0.05
    bfloat16: float = 0.75
    zeros: bool = True

    def of(self, sequences: int, context: int, from_zero: bool) -> float:
        """Numbers saved for `sequences` of `context` tokens, with or without (`from_zero`) an initial state."""
        borders = ceil(context / self.chunk) - (from_zero and not self.zeros)
        return sequences * (self.a_token * context + self.border * borders) + self.once


class SublayerSpec(Spec, ABC):
    """One sublayer of a block. `d_model` is the width D of the model."""

    kind: str

    @abstractmethod
    def parameters(self, d_model: int) -> int:
        """Parameters in one layer, without the norm before it."""

    def idle(self, d_model: int) -> int:
        """Parameters that a token does not use: experts that are not chosen for it."""
        return 0

    @abstractmethod
    def state_numbers(self, d_model: int, context: int) -> int:
        """Size of one sequence's state in one layer after `context` tokens, with the last inputs of convolutions."""

    @abstractmethod
    def activation_memory(self, d_model: int) -> ActivationMemory:
        """Numbers that one layer saves for the backward pass."""


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
    """Parameters of a depthwise causal convolution, with a bias.

    >>> short_convolution(10, 4)
    50
    """
    return channels * (width + 1)


def last_inputs(channels: int, width: int) -> int:
    """Size of the state of a depthwise causal convolution: the inputs that later outputs need.

    >>> last_inputs(10, 4)
    30
    """
    return channels * (width - 1)
