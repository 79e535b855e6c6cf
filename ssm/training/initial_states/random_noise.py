"""Random noise (lg Section 4.2): every state value is drawn from N(0, sigma^2)."""

from __future__ import annotations

import torch

from ssm.models.state import State
from ssm.training.initial_states.base import Policy


class RandomNoisePolicy(Policy, kind="random_noise"):
    """Takes the state's shapes from the first batch, which starts from zero."""

    template: State | None = None  # one row of zeros
    seen: State | None = None  # the same, during the first batch

    def start(self, step: int, batch_size: int, device: torch.device) -> State | None:
        if self.template is None:
            return None
        generator, rows = self.generator(step, device), self.group.rows(batch_size)
        zeros = self.template.to(device).zeros(rows.stop - rows.start)
        noise = [self.spec.sigma * self.normal(memory, batch_size, generator) for memory in zeros.recurrent_states()]
        return self.with_zeroed_rows(zeros.with_recurrent_states(noise), batch_size, generator)

    def see(self, ended: State) -> None:
        if self.seen is None:
            self.seen = ended.zeros(1)

    def learn(self) -> None:
        self.template = self.seen

    def tensors(self) -> dict[str, torch.Tensor]:
        return {} if self.template is None else self.template.tensors("template.")

    def load(self, tensors: dict[str, torch.Tensor]) -> None:
        self.template = self.seen = State.from_tensors(tensors, "template.") if tensors else None
