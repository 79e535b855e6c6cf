"""The gradients of one model in one process: cleared, summed over micro-batches and processes, clipped.

The gradients of a large model stay where autograd creates them. DDP or FSDP sums them during the backward pass.
The gradients of a small model share one flat buffer, so that clearing, summing and scaling take one call each instead
of one per parameter. The step of a small model spends more time on calls than on arithmetic, and has nothing to
overlap.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

import torch
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

from ssm.models.trainable import TrainableModel
from ssm.training.distributed import ProcessGroup
from ssm.training.parallel import fits_flat_buffer, full_tensor

if TYPE_CHECKING:
    from torch.distributed.fsdp import FSDPModule


def gradients_of(model: TrainableModel, forward: nn.Module, group: ProcessGroup) -> Gradients:
    """The gradients of `model`; `forward` is the module that `ssm.training.parallel.parallelize` returned for it."""
    if forward is model and fits_flat_buffer(model):
        return FlatGradients(model, forward, group)
    return Gradients(model, forward)


class Gradients:
    """Separate gradients for each parameter, where autograd creates them."""

    def __init__(self, model: TrainableModel, forward: nn.Module):
        self.parameters, self.forward = list(model.parameters()), forward

    def clear(self) -> None:
        """Clear the gradients of the last step."""
        for parameter in self.parameters:
            parameter.grad = None

    def set_sync(self, on: bool) -> None:
        """Set whether the next backward pass averages the gradients over the group, or only adds to them.

        The last micro-batch averages.
        """
        if isinstance(self.forward, DistributedDataParallel):
            self.forward.require_backward_grad_sync = on
        elif hasattr(self.forward, "set_requires_gradient_sync"):  # FSDP
            cast("FSDPModule", self.forward).set_requires_gradient_sync(on)

    def clip(self, norm: float) -> Tensor:
        """Scale the averaged gradients down to `norm` after the last backward pass; returns the norm before that."""
        return full_tensor(torch.nn.utils.clip_grad_norm_(self.parameters, norm))


class FlatGradients(Gradients):
    """Gradients as views of a flat buffer. A parameter without influence on the loss has a zero gradient, not None."""

    def __init__(self, model: TrainableModel, forward: nn.Module, group: ProcessGroup):
        super().__init__(model, forward)
        self.group = group
        sizes = [parameter.numel() for parameter in self.parameters]
        self.flat = self.parameters[0].new_zeros(sum(sizes))
        self.views = [
            view.view_as(parameter) for view, parameter in zip(self.flat.split(sizes), self.parameters, strict=True)
        ]

    def clear(self) -> None:
        self.flat.zero_()
        for parameter, view in zip(self.parameters, self.views, strict=True):
            parameter.grad = view

    def clip(self, norm: float) -> Tensor:
        if self.group.size > 1:
            self.group.all_reduce(self.flat)
            self.flat /= self.group.size
        total = torch.nn.utils.get_total_norm(self.views)
        self.flat *= (norm / (total + 1e-6)).clamp(max=1.0)
        return total
