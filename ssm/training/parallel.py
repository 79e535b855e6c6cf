"""One model in several processes: a copy in each (DDP for a large model), or sharded parameters (FSDP2).

In both cases the gradient is that of the mean loss over the global batch. Files hold unsharded tensors, so a checkpoint
does not depend on the number of processes or on sharding.
FSDP takes long to import, so it is imported only if a model is sharded.
"""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

from ssm.models.trainable import TrainableModel
from ssm.training.distributed import ProcessGroup

FLAT_BYTES = 2**20  # largest size of a flat buffer: that of DDP's first bucket


def fits_flat_buffer(model: TrainableModel) -> bool:
    """Whether the gradients are small enough for one flat buffer (`ssm.training.gradients`)."""
    parameters = list(model.parameters())
    alike = len({parameter.dtype for parameter in parameters}) == 1 and not any(map(_is_sharded, parameters))
    return alike and sum(parameter.nbytes for parameter in parameters) <= FLAT_BYTES


def parallelize(model: TrainableModel, group: ProcessGroup, device: torch.device, shard: bool) -> nn.Module:
    """The module to call instead of `model`. `ssm.training.gradients` averages its gradients over the group.

    Args:
        shard: shard the parameters, gradients and optimizer state over the processes, layer by layer.
    """
    if group.size == 1 or (not shard and fits_flat_buffer(model)):
        return model
    if not shard:
        devices = [device.index] if device.type == "cuda" else None
        return DistributedDataParallel(model, device_ids=devices, gradient_as_bucket_view=True)
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import fully_shard

    warnings.filterwarnings("ignore", message="FSDP2-wrapped module .* returned a view")  # no in-place changes here
    mesh = init_device_mesh(device.type, (group.size,))
    for layer in model.layers:
        fully_shard(layer, mesh=mesh)
    fully_shard(model, mesh=mesh)
    return model


def _is_sharded(tensor: Any) -> bool:
    """Whether it is a DTensor."""
    return hasattr(tensor, "full_tensor")


def full_tensor(tensor: Any) -> Tensor:
    """A sharded tensor as a full tensor, in every process; other tensors unchanged."""
    return tensor.full_tensor() if _is_sharded(tensor) else tensor


def full_tensors(tensors: Mapping[str, Tensor], group: ProcessGroup) -> dict[str, Tensor]:
    """Named tensors, unsharded one after the other. The main process keeps them, formerly sharded ones on the CPU.

    The other processes must call it too; they get an empty dictionary.
    """
    kept: dict[str, Tensor] = {}
    for name, tensor in tensors.items():
        full = full_tensor(tensor)
        if group.main:
            kept[name] = full.cpu() if _is_sharded(tensor) else full
    return kept


def sharded_like(tensors: Mapping[str, Tensor], like: Mapping[str, Any]) -> dict[str, Tensor]:
    """Full tensors, sharded in the same way as the tensors of the same names in `like`.

    Every process has the full tensor and keeps its part, so nothing is sent.
    """
    return {name: _sharded(tensor, like.get(name)) for name, tensor in tensors.items()}


def _sharded(tensor: Tensor, like: Any) -> Tensor:
    if not _is_sharded(like) or tensor.shape != like.shape:
        return tensor
    from torch.distributed.tensor import distribute_tensor

    return distribute_tensor(tensor.to(like.device), like.device_mesh, like.placements, src_data_rank=None)
