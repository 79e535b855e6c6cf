"""One model in several processes: a copy in each (a large one's in DDP), or its parameters spread over them (FSDP2).

The gradient is that of the mean loss over the global batch in either case. Everything that is written or read is whole
tensors, so that a checkpoint knows nothing of how many processes there were, and whether they shared a model.
FSDP takes longer to import than all else that training needs, so that it is imported where a model is spread.
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

ONE_PIECE = 2**20  # bytes, as the first bucket of DDP


def in_one_piece(model: TrainableModel) -> bool:
    """Whether the gradients are so few that they are kept, and sent, in one piece (`ssm.training.gradients`)."""
    parameters = list(model.parameters())
    alike = len({parameter.dtype for parameter in parameters}) == 1 and not any(map(_is_spread, parameters))
    return alike and sum(parameter.nbytes for parameter in parameters) <= ONE_PIECE


def spread(model: TrainableModel, group: ProcessGroup, device: torch.device, shard: bool) -> nn.Module:
    """What to call in place of `model`; `ssm.training.gradients` then makes means over the group of its gradients.

    Args:
        shard: spread the parameters, their gradients and the optimizer's state over the processes, block by block.
    """
    if group.size == 1 or (not shard and in_one_piece(model)):
        return model
    if not shard:
        devices = [device.index] if device.type == "cuda" else None
        return DistributedDataParallel(model, device_ids=devices, gradient_as_bucket_view=True)
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import fully_shard

    warnings.filterwarnings("ignore", message="FSDP2-wrapped module .* returned a view")  # nothing is changed in place
    mesh = init_device_mesh(device.type, (group.size,))
    for layer in model.layers:
        fully_shard(layer, mesh=mesh)
    fully_shard(model, mesh=mesh)
    return model


def _is_spread(tensor: Any) -> bool:
    """Whether it is a DTensor."""
    return hasattr(tensor, "full_tensor")


def whole(tensor: Any) -> Tensor:
    """A spread tensor in one piece, in every process; any other as it is."""
    return tensor.full_tensor() if _is_spread(tensor) else tensor


def whole_tensors(tensors: Mapping[str, Tensor], group: ProcessGroup) -> dict[str, Tensor]:
    """Named tensors, one after the other in one piece; those that were spread are kept by main alone, on the CPU."""
    kept: dict[str, Tensor] = {}
    for name, tensor in tensors.items():
        piece = whole(tensor)
        if group.main:
            kept[name] = piece.cpu() if _is_spread(tensor) else piece
    return kept


def spread_as(tensors: Mapping[str, Tensor], like: Mapping[str, Any]) -> dict[str, Tensor]:
    """Whole tensors, spread over the processes as those of the same names in `like` are.

    Every process has the whole tensor and keeps its part, so that nothing is sent.
    """
    return {name: _as(tensor, like.get(name)) for name, tensor in tensors.items()}


def _as(tensor: Tensor, like: Any) -> Tensor:
    if not _is_spread(like) or tensor.shape != like.shape:
        return tensor
    from torch.distributed.tensor import distribute_tensor

    return distribute_tensor(tensor.to(like.device), like.device_mesh, like.placements, src_data_rank=None)
