"""Fitted noise (lg Section 4.3, eq. 5 and 6): N(mean, variance) of the final states, by layer and head."""

from __future__ import annotations

import torch
from torch import Tensor

from ssm.models.state import State
from ssm.training.distributed import ALONE, Team
from ssm.training.initial_state.policy import Policy


class FittedNoisePolicy(Policy):
    """mean and variance: one (H,) pair per layer, a moving average over batches; the first batch starts from zero."""

    template: State | None = None  # one row of zeros

    def __init__(self, spec: object, seed: int, team: Team = ALONE):
        super().__init__(spec, seed, team)
        self.moments: list[tuple[Tensor, Tensor]] = []

    def start(self, step: int, batch_size: int, device: torch.device) -> State | None:
        if self.template is None:
            return None
        generator, rows = self.generator(step, device), self.team.rows(batch_size)
        zeros = self.template.to(device).zeros(rows.stop - rows.start)
        noise = []
        for memory, (mean, variance) in zip(zeros.memories(), self.moments, strict=True):
            over = (1, -1) + (1,) * (memory.dim() - 2)
            draw = self.normal(memory, batch_size, generator)  # (B, H, ...)
            noise.append(mean.to(device).view(over) + variance.to(device).sqrt().view(over) * draw)
        return self.with_zeroed_rows(zeros.with_memories(noise), batch_size, generator)

    def learn(self, ended: State) -> None:
        batch = pooled([_moments(memory) for memory in ended.memories()], self.team)
        if self.template is None:
            self.template, self.moments = ended.zeros(1), batch
            return
        beta = self.spec.beta
        self.moments = [
            (
                (1 - beta) * mean + beta * old_mean.to(mean.device),
                (1 - beta) * variance + beta * old_variance.to(mean.device),
            )
            for (mean, variance), (old_mean, old_variance) in zip(batch, self.moments, strict=True)
        ]

    def tensors(self) -> dict[str, Tensor]:
        if self.template is None:
            return {}
        pairs = {f"moments.{i}": torch.stack(pair) for i, pair in enumerate(self.moments)}  # (2, H)
        return self.template.tensors("template.") | pairs

    def load(self, tensors: dict[str, Tensor]) -> None:
        if not tensors:
            return
        self.template = State.from_tensors(tensors, "template.")
        pairs = [tensors[f"moments.{i}"] for i in range(len(self.template.layers))]
        self.moments = [(pair[0], pair[1]) for pair in pairs]


def _moments(memory: Tensor) -> tuple[Tensor, Tensor]:
    """Mean and variance by head, over the batch and all elements of the head: (H,) each."""
    flat = memory.float().transpose(0, 1).flatten(1)  # (H, B * elements)
    return flat.mean(1), flat.var(1, correction=0)


def pooled(moments: list[tuple[Tensor, Tensor]], team: Team) -> list[tuple[Tensor, Tensor]]:
    """The moments of the global batch from those of the team's equal parts of it, all layers in one exchange.

    The variance is the mean variance inside the parts and the variance between their means (Chan et al. 1979): no
    difference of large numbers.
    """
    if team.size == 1:
        return moments
    parts = team.stacked(
        torch.stack([torch.cat([mean for mean, _ in moments]), torch.cat([var for _, var in moments])])
    )
    means, variances = parts.unbind(1)  # (ranks, all heads of all layers) each
    mean, variance = means.mean(0), variances.mean(0) + means.var(0, correction=0)
    heads = [len(layer) for layer, _ in moments]
    return list(zip(mean.split(heads), variance.split(heads), strict=True))
