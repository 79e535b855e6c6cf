"""The protocol of an initial-state policy, and the simplest one."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any

import torch
from torch import Tensor

from ssm.base.seeds import derived_seed
from ssm.models.state import State


class Policy(ABC):
    """Two questions: what state does this batch start from, and what is learned from the state it ended in.

    Rows of a state are the rows of the batch: row b of step s + 1 follows row b of step s.
    """

    learns = True  # False: `learn` is never called, and a batch's final states need not be gathered

    def __init__(self, spec: Any, seed: int):
        self.spec, self.seed = spec, seed

    @abstractmethod
    def start(self, step: int, batch_size: int, device: torch.device) -> State | None:
        """The state that the `batch_size` sequences of `step` start from, detached; None is the zero state."""

    def learn(self, ended: State) -> None:  # noqa: B027 (a policy may have nothing to learn)
        """Take note of the state (detached) that a batch ended in."""

    def tensors(self) -> dict[str, Tensor]:
        """What a checkpoint must hold so that a resumed run is the same run."""
        return {}

    def load(self, tensors: dict[str, Tensor]) -> None:  # noqa: B027 (nor anything to keep)
        """The inverse of `tensors`."""

    def generator(self, step: int, device: torch.device) -> torch.Generator:
        """The stream of state noise at `step`: apart from data order and initialization."""
        return torch.Generator(device).manual_seed(derived_seed(self.seed, "state", step))

    def with_zeroed_rows(self, state: State, generator: torch.Generator) -> State:
        """The state with each row zeroed with probability p, so that the model still meets an empty context."""
        if self.spec.p_zero == 0:
            return state
        draw = torch.rand(state.batch_size, generator=generator, device=generator.device)  # (B,)
        return state.reset(draw < self.spec.p_zero)


class ZeroPolicy(Policy):
    """Every sequence starts without a past."""

    learns = False

    def start(self, step: int, batch_size: int, device: torch.device) -> State | None:
        return None
