"""Fitted noise (lg Section 4.3, eq. 5 and 6): N(mean, variance) of the final states, per layer and head."""

from __future__ import annotations

import torch
from torch import Tensor

from ssm.models.state import State
from ssm.training.distributed import ProcessGroup
from ssm.training.initial_states.base import Policy


class FittedNoisePolicy(Policy, kind="fitted_noise"):
    """Moving averages over batches of mean and variance, per layer and head. The first batch starts from zero."""

    template: State | None = None  # one row of zeros
    moments: Tensor | None = None  # (2, H of all layers)

    def __init__(self, spec: object, seed: int, group: ProcessGroup):
        super().__init__(spec, seed, group)
        self.parts: list[tuple[int, Tensor]] = []  # (sequences, moments) of the micro-batches of this step

    def start(self, step: int, batch_size: int, device: torch.device) -> State | None:
        if self.template is None or self.moments is None:
            return None
        generator, rows = self.generator(step, device), self.group.rows(batch_size)
        zeros = self.template.to(device).zeros(rows.stop - rows.start)
        means, deviations = self.moments[0], self.moments[1].sqrt()
        noise = []
        for memory, mean, deviation in zip(
            zeros.recurrent_states(), *map(self._by_layer, (means, deviations)), strict=True
        ):
            over = (1, -1) + (1,) * (memory.dim() - 2)
            draw = self.normal(memory, batch_size, generator)  # (B, H, ...)
            noise.append(mean.to(device).view(over) + deviation.to(device).view(over) * draw)
        return self.with_zeroed_rows(zeros.with_recurrent_states(noise), batch_size, generator)

    def see(self, ended: State) -> None:
        if self.template is None:
            self.template = ended.zeros(1)
        self.parts.append((ended.batch_size, moments_of(ended)))

    def learn(self) -> None:
        sequences, parts = zip(*self.parts, strict=True)
        self.parts = []
        mine = pooled(torch.stack(parts), torch.tensor(sequences))
        # Processes have equally many sequences.
        batch = pooled(self.group.all_gather(mine), torch.ones(self.group.size))
        if self.moments is not None:
            batch = (1 - self.spec.beta) * batch + self.spec.beta * self.moments.to(batch.device)
        self.moments = batch

    def tensors(self) -> dict[str, Tensor]:
        if self.template is None or self.moments is None:
            return {}
        pairs = {f"moments.{i}": layer.contiguous() for i, layer in enumerate(self._by_layer(self.moments))}  # (2, H)
        return self.template.tensors("template.") | pairs

    def load(self, tensors: dict[str, Tensor]) -> None:
        if not tensors:
            return
        self.template = State.from_tensors(tensors, "template.")
        self.moments = torch.cat([tensors[f"moments.{i}"] for i in range(len(self.template.layers))], 1)

    def _by_layer(self, values: Tensor) -> tuple[Tensor, ...]:
        """Split (..., H of all layers) by layer."""
        assert self.template is not None
        return values.split([memory.shape[1] for memory in self.template.recurrent_states()], -1)


def moments_of(state: State) -> Tensor:
    """Mean and variance per head, over the batch and all elements of the head: (2, H of all layers)."""
    heads = [memory.float().transpose(0, 1).flatten(1) for memory in state.recurrent_states()]  # (H, B * elements) each
    return torch.stack(
        [torch.cat([head.mean(1) for head in heads]), torch.cat([head.var(1, correction=0) for head in heads])]
    )


def pooled(parts: Tensor, sizes: Tensor) -> Tensor:
    """The moments of a batch (2, H) from the moments of its parts (n, 2, H) with `sizes` sequences (n,).

    The variance is the mean variance within the parts plus the variance between their means (Chan et al. 1979). This
    avoids differences of large numbers.
    """
    share = (sizes / sizes.sum()).to(parts)[:, None]  # (n, 1)
    means, variances = parts.unbind(1)  # (n, H) each
    mean = (share * means).sum(0)
    return torch.stack([mean, (share * (variances + (means - mean).square())).sum(0)])
