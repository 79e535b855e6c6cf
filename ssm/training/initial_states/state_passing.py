"""State Passing (lg Section 4.4): a batch starts from the final states of the batch before, those of other sequences.

The whole state is passed, short convolutions' inputs included, and the gradient stops at the border.
"""

from __future__ import annotations

import torch
from torch import Tensor

from ssm.models.state import State, joined
from ssm.training.distributed import SINGLE_PROCESS, ProcessGroup
from ssm.training.initial_states.base import Policy


class StatePassingPolicy(Policy, kind="state_passing"):
    """Row b of a batch starts where row b of the last batch ended; zeroed with probability p."""

    last: State | None = None

    def __init__(self, spec: object, seed: int, group: ProcessGroup = SINGLE_PROCESS):
        super().__init__(spec, seed, group)
        self.parts: list[State] = []  # where the micro-batches seen so far have ended

    def start(self, step: int, batch_size: int, device: torch.device) -> State | None:
        if self.last is None:
            return None
        return self.with_zeroed_rows(self.last.to(device), batch_size, self.generator(step, device))

    def see(self, ended: State) -> None:
        self.parts.append(ended)

    def learn(self) -> None:
        self.last = None  # a state of the whole batch may be large: no more of them at a time than must be
        self.last, self.parts = joined(self.parts), []

    def tensors(self) -> dict[str, Tensor]:
        return {} if self.last is None else self.last.map(self.group.gathered).tensors("last.")

    def load(self, tensors: dict[str, Tensor]) -> None:
        last = State.from_tensors(tensors, "last.") if tensors else None
        self.last = last and last.map(lambda tensor: tensor[self.group.rows(len(tensor))].clone())
