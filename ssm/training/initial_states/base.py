"""The protocol of an initial-state policy."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any

import torch
from torch import Tensor

from ssm.base.plugin_modules import Modules
from ssm.base.seeds import derived_seed
from ssm.models.state import State
from ssm.specs.initial_states import SPECS
from ssm.training.distributed import SINGLE_PROCESS, ProcessGroup

POLICIES: Modules[type[Policy]] = Modules("ssm.training.initial_states", SPECS)


class Policy(ABC):
    """Two questions: what state does this batch start from, and what is learned from the state it ended in.

    Rows of a state are the rows of the batch: row b of step s + 1 follows row b of step s. With several processes each
    has a policy of its own, for its rows of the global batch; what is learned over a batch is learned over all of it.
    """

    def __init_subclass__(cls, kind: str | None = None, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        if kind is not None:  # else it is what several share
            POLICIES.add(kind, cls)

    def __init__(self, spec: Any, seed: int, group: ProcessGroup = SINGLE_PROCESS):
        self.spec, self.seed, self.group = spec, seed, group

    @abstractmethod
    def start(self, step: int, batch_size: int, device: torch.device) -> State | None:
        """The state, detached, that my rows of the batch of `step` start from; None is the zero state.

        Args:
            batch_size: sequences in the global batch.
        """

    def see(self, ended: State) -> None:  # noqa: B027 (a policy may have nothing to learn)
        """Look at the state (detached) that a micro-batch ended in: the next of my rows of the batch."""

    def learn(self) -> None:  # noqa: B027
        """Behind the last micro-batch: what `start` is to know from then on."""

    def tensors(self) -> dict[str, Tensor]:
        """What a checkpoint must hold so that a resumed run is the same run, for whatever number of processes.

        All processes have to ask; main is told for the whole batch.
        """
        return {}

    def load(self, tensors: dict[str, Tensor]) -> None:  # noqa: B027 (nor anything to keep)
        """The inverse of `tensors`."""

    def generator(self, step: int, device: torch.device) -> torch.Generator:
        """The stream of state noise at `step`: apart from data order and initialization."""
        return torch.Generator(device).manual_seed(derived_seed(self.seed, "state", step))

    def with_zeroed_rows(self, state: State, batch_size: int, generator: torch.Generator) -> State:
        """My rows with each row zeroed with probability p, so that the model still meets an empty context."""
        if self.spec.p_zero == 0:
            return state
        draw = torch.rand(batch_size, generator=generator, device=generator.device)  # (B,), the global batch
        return state.reset(draw[self.group.rows(batch_size)] < self.spec.p_zero)

    def normal(self, memory: Tensor, batch_size: int, generator: torch.Generator) -> Tensor:
        """Standard normal noise for my rows of a memory (B, ...), cut out of what is drawn for the global batch."""
        shape = (batch_size, *memory.shape[1:])
        return torch.randn(shape, generator=generator, device=generator.device)[self.group.rows(batch_size)]
