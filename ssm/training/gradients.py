"""The gradients of one model in one process: cleared, summed over micro-batches and processes, clipped.

A large model's stay where autograd makes them, and DDP or FSDP sums them while the backward pass still makes others.
A small model's lie in one piece of memory, which is cleared, summed and scaled in one call each instead of one or more
a parameter: its step costs calls more than arithmetic, and one bucket of DDP leaves it nothing to overlap.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

import torch
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

from ssm.models.trainable import TrainableModel
from ssm.training.distributed import ProcessGroup
from ssm.training.parallel import in_one_piece, whole

if TYPE_CHECKING:
    from torch.distributed.fsdp import FSDPModule


def gradients_of(model: TrainableModel, forward: nn.Module, group: ProcessGroup) -> Gradients:
    """The gradients of `model`, which is called through `forward` (`ssm.training.parallel.spread`)."""
    return OnePiece(model, forward, group) if forward is model and in_one_piece(model) else Gradients(model, forward)


class Gradients:
    """Parameter by parameter, where autograd makes them."""

    def __init__(self, model: TrainableModel, forward: nn.Module):
        self.parameters, self.forward = list(model.parameters()), forward

    def clear(self) -> None:
        """Forget those of the last step."""
        for parameter in self.parameters:
            parameter.grad = None

    def share(self, on: bool) -> None:
        """Whether the next backward pass ends with the mean over the group (on the last micro-batch) or only adds
        up.
        """
        if isinstance(self.forward, DistributedDataParallel):
            self.forward.require_backward_grad_sync = on
        elif hasattr(self.forward, "set_requires_gradient_sync"):  # FSDP
            cast("FSDPModule", self.forward).set_requires_gradient_sync(on)

    def clip(self, norm: float) -> Tensor:
        """Behind the last backward pass: scale the mean over the group down to `norm`; returns the norm that it had."""
        return whole(torch.nn.utils.clip_grad_norm_(self.parameters, norm))


class OnePiece(Gradients):
    """Views of one piece of memory. A parameter that had no part in the loss has a gradient of zeros, not none."""

    def __init__(self, model: TrainableModel, forward: nn.Module, group: ProcessGroup):
        super().__init__(model, forward)
        self.group = group
        sizes = [parameter.numel() for parameter in self.parameters]
        self.piece = self.parameters[0].new_zeros(sum(sizes))
        self.parts = [
            part.view_as(parameter) for part, parameter in zip(self.piece.split(sizes), self.parameters, strict=True)
        ]

    def clear(self) -> None:
        self.piece.zero_()
        for parameter, part in zip(self.parameters, self.parts, strict=True):
            parameter.grad = part

    def clip(self, norm: float) -> Tensor:
        if self.group.size > 1:
            self.group.add_up(self.piece)
            self.piece /= self.group.size
        total = torch.nn.utils.get_total_norm(self.parts)
        self.piece *= (norm / (total + 1e-6)).clamp(max=1.0)
        return total
