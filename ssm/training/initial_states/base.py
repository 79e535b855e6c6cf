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
from ssm.training.distributed import ProcessGroup

POLICIES: Modules[type[Policy]] = Modules("ssm.training.initial_states", SPECS)


class Policy(ABC):
    """Decides which state a batch starts from, and what it learns from the state in which the batch ended.

    Row b of a state belongs to row b of the batch, and continues row b of the last batch. With several processes, each
    has its own policy for its rows of the global batch. What a policy learns, it learns from the global batch.
    """

    def __init_subclass__(cls, kind: str | None = None, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        if kind is not None:  # None: a base class
            POLICIES.add(kind, cls)

    def __init__(self, spec: Any, seed: int, group: ProcessGroup):
        self.spec, self.seed, self.group = spec, seed, group

    @abstractmethod
    def start(self, step: int, batch_size: int, device: torch.device) -> State | None:
        """The initial state, detached, of this process's rows of the batch of `step`. None is the zero state.

        Args:
            batch_size: sequences in the global batch.
        """

    def see(self, ended: State) -> None:  # noqa: B027 (a policy may have nothing to learn)
        """Take the final state (detached) of a micro-batch: the next rows of this process."""

    def learn(self) -> None:  # noqa: B027
        """Called after the last micro-batch: update what `start` uses from then on."""

    def tensors(self) -> dict[str, Tensor]:
        """The tensors that a checkpoint needs so that a resumed run stays the same, for any number of processes.

        All processes must call it. The main process gets the tensors of the global batch.
        """
        return {}

    def load(self, tensors: dict[str, Tensor]) -> None:  # noqa: B027 (a policy may have nothing to load)
        """The inverse of `tensors`."""

    def generator(self, step: int, device: torch.device) -> torch.Generator:
        """The random numbers of `step`, independent of data order and initialization."""
        return torch.Generator(device).manual_seed(derived_seed(self.seed, "state", step))

    def with_zeroed_rows(self, state: State, batch_size: int, generator: torch.Generator) -> State:
        """Zero each row of this process with probability p, so that the model still trains on empty contexts."""
        if self.spec.p_zero == 0:
            return state
        draw = torch.rand(batch_size, generator=generator, device=generator.device)  # (B,), the global batch
        return state.reset(draw[self.group.rows(batch_size)] < self.spec.p_zero)

    def normal(self, memory: Tensor, batch_size: int, generator: torch.Generator) -> Tensor:
        """Standard normal noise for this process's rows of a memory (B, ...), a part of the global batch's noise."""
        shape = (batch_size, *memory.shape[1:])
        return torch.randn(shape, generator=generator, device=generator.device)[self.group.rows(batch_size)]
