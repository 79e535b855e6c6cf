"""One forward pass of training: a micro-batch, its loss, and the state that it ends in."""

from __future__ import annotations

from contextlib import nullcontext
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ssm.data.batches import Batch
from ssm.models.state import State
from ssm.specs.training import TrainingSpec


@dataclass(frozen=True)
class Part:
    """Loss (a scalar with its graph) and final state (detached) of one micro-batch."""

    loss: Tensor
    ended: State


def loss_of(model: nn.Module, batch: Batch, start: State | None, training: TrainingSpec, device: torch.device) -> Part:
    """Mean cross-entropy, nats per token, of a micro-batch from its initial state; `model` calls a LanguageModel."""
    inputs, targets = batch.inputs.to(device), batch.targets.to(device)  # (B, T)
    resets = None
    if batch.starts is not None and training.initial_state.resets:
        resets = batch.starts.to(device)  # (B, T)
    autocast = training.precision == "bfloat16"
    with torch.autocast(device.type, torch.bfloat16) if autocast else nullcontext():
        logits, ended = model(inputs, start, resets)  # (B, T, V)
    loss = F.cross_entropy(logits.float().flatten(0, 1), targets.flatten())
    return Part(loss, ended.detach())


def rows_of(batch: Batch, rows: Tensor) -> Batch:
    """Some of a batch's sequences."""
    if len(rows) == len(batch.inputs):
        return batch
    starts = None if batch.starts is None else batch.starts[rows]
    return Batch(batch.inputs[rows], batch.targets[rows], starts)
