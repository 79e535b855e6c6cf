"""State Passing (lg Section 4.4): a batch starts from the final states of the last batch, which read other text.

The whole state is passed, also the inputs of short convolutions. Gradients stop at the border between batches.
"""

from __future__ import annotations

import torch
from torch import Tensor

from ssm.models.state import State, joined
from ssm.training.distributed import ProcessGroup
from ssm.training.initial_states.base import Policy


class StatePassingPolicy(Policy, kind="state_passing"):
    """Row b of a batch starts where row b of the last batch ended; it is zeroed with probability p."""

    last: State | None = None

    def __init__(self, spec: object, seed: int, group: ProcessGroup):
        super().__init__(spec, seed, group)
        self.parts: list[State] = []  # final states of the micro-batches of this step

    def start(self, step: int, batch_size: int, device: torch.device) -> State | None:
        if self.last is None:
            return None
        return self.with_zeroed_rows(self.last.to(device), batch_size, self.generator(step, device))

    def see(self, ended: State) -> None:
        self.parts.append(ended)

    def learn(self) -> None:
        self.last = None  # states of the whole batch may be large: free this one before the next is built
        self.last, self.parts = joined(self.parts), []

    def tensors(self) -> dict[str, Tensor]:
        return {} if self.last is None else self.last.map(self.group.gather).tensors("last.")

    def load(self, tensors: dict[str, Tensor]) -> None:
        last = State.from_tensors(tensors, "last.") if tensors else None
        self.last = last and last.map(lambda tensor: tensor[self.group.rows(len(tensor))].clone())
