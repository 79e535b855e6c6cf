"""One optimizer step: micro-batches, forward and backward passes, and the update of the initial-state policy."""

from __future__ import annotations

from contextlib import nullcontext
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ssm.base.seeds import derived_seed
from ssm.base.stopping import StopRequest
from ssm.data.batches import IGNORE_INDEX, Batch
from ssm.data.store import TokenStore
from ssm.data.training_batches import training_batches
from ssm.models.state import State
from ssm.models.trainable import TrainableModel
from ssm.specs.training import TrainingSpec
from ssm.training.gradients import gradients_of
from ssm.training.initial_states import build_policy
from ssm.training.job import Job
from ssm.training.optimizer import build_optimizer, set_rates
from ssm.training.parallel import parallelize
from ssm.training.schedule import learning_rate, weight_decay


class Stepper:
    """Makes the steps of a run. It holds the batches, model, gradients, optimizer and initial-state policy."""

    def __init__(self, job: Job, store: TokenStore, model: TrainableModel):
        self.job, self.model, training = job, model, job.training
        self.mine, self.micro_batch_size = job.machine.rows_and_micro_batch(training)
        self.peak = job.run.model.peak_lr * training.lr_scale
        model.recompute = training.activation_checkpointing
        if training.compile:
            for layer in model.layers:
                layer.compile()
        self.forward = parallelize(model, job.group, job.device, job.machine.shard)
        self.gradients = gradients_of(model, self.forward, job.group)
        self.optimizer = build_optimizer(model, training)
        self.endless = job.run.model.endless  # layers of whose state the next batch is given nothing
        self.policy = build_policy(training.initial_state, job.run.seed, job.group)
        # Post-training uses another data order than pre-training. All arms of a stage use the same order.
        order = derived_seed(job.run.seed, "order", job.run.stage)
        stream = training.initial_state.order == "stream"
        self.batches = training_batches(store, training.context, training.batch_size, stream, order)

    def warm_up(self) -> None:
        """With DDP: make a forward and backward pass. The first step clears its gradients.

        DDP rebuilds its buckets after the first pass. From then on every step sums gradients in the same order, also
        after a resume.
        """
        if self.forward is not self.model:
            micro = rows_of(self.batches.batch(0, self.mine), torch.arange(self.micro_batch_size))
            loss_of(self.forward, micro, None, self.job.training, self.job.device).loss.backward()

    def train_step(self, step: int, stop: StopRequest | None) -> dict[str, Any] | None:
        """Make step number `step`, counted from 1, and return its row of metrics. Values may still be on a device.

        Returns None, and does not update the model, if a process received a signal to stop. The processes compare
        their signals between micro-batches only if `stop` is given, because this takes time.
        """
        training = self.job.training
        lr = learning_rate(training, self.peak, step, self.job.steps)
        decay = weight_decay(training, lr, self.peak)
        set_rates(self.optimizer, lr, decay)
        batch = self.batches.batch(step - 1, self.mine)
        start = self.policy.start(step, training.batch_size, self.job.device)
        loss, right = torch.zeros((), device=self.job.device), torch.zeros((), device=self.job.device)
        targets = self._targets_per_process(batch)
        self.gradients.clear()
        mine = torch.arange(len(batch.inputs))
        for rows in mine.split(self.micro_batch_size):
            if stop and len(mine) > len(rows) and self.job.group.any_of(stop.signal is not None)[0]:
                return None
            self.gradients.set_sync(bool(rows[-1] == mine[-1]))
            micro = rows_of(batch, rows)
            part = loss_of(self.forward, micro, start and start.select(rows), training, self.job.device)
            share = micro.target_count / targets
            (part.loss * share).backward()
            loss += part.loss.detach() * share
            right += part.right
            self.policy.see(part.ended.without(self.endless))
        self.policy.learn()
        norm = self.gradients.clip(training.clip_norm)
        self.optimizer.step()
        accuracy = {"accuracy": right / targets} if batch.answers else {}
        return accuracy | {
            "step": step,
            "tokens": step * training.batch_tokens,
            "loss": loss,
            "grad_norm": norm,
            "lr": lr,
            "weight_decay": decay,
            "state_norm": 0.0 if start is None else start.norm().mean(),
        }

    def _targets_per_process(self, batch: Batch) -> float:
        """Number of targets of the global batch that count, divided by the number of processes.

        Gradients and metrics are means over processes. In a text every target counts, so all processes have the same
        number.
        """
        if not batch.answers:
            return batch.target_count
        return int(self.job.group.total(torch.tensor(batch.target_count))) / self.job.group.size

    def close(self) -> None:
        """Drop DDP's wrapper, which holds connections, because a traceback may keep the stepper alive."""
        self.forward = self.gradients.forward = self.model


@dataclass(frozen=True)
class MicroBatchResult:
    """The result of one micro-batch.

    Attributes:
        loss: a scalar with its graph.
        ended: the final state, detached.
        right: number of answer tokens that are the most probable ones; 0 for text.
    """

    loss: Tensor
    ended: State
    right: Tensor | int = 0


def loss_of(
    model: nn.Module, batch: Batch, start: State | None, training: TrainingSpec, device: torch.device
) -> MicroBatchResult:
    """Run a micro-batch from its initial state.

    The loss is the mean cross-entropy, nats, over the targets that count; 0 if none does.
    """
    inputs, targets = batch.inputs.to(device), batch.targets.to(device)  # (B, T)
    resets = None
    if batch.starts is not None and training.initial_state.resets:
        resets = batch.starts.to(device)  # (B, T)
    autocast = training.precision == "bfloat16"
    with torch.autocast(device.type, torch.bfloat16) if autocast else nullcontext():
        logits, ended = model(inputs, start, resets)  # (B, T, V)
    logits, targets = logits.flatten(0, 1), targets.flatten()
    if not batch.answers:
        return MicroBatchResult(F.cross_entropy(logits.float(), targets), ended.detach())
    places = (batch.targets.flatten() != IGNORE_INDEX).nonzero()[:, 0].to(device)
    logits, targets = logits[places].float(), targets[places]  # (n, V), (n,)
    loss = F.cross_entropy(logits, targets) if len(places) else logits.sum()
    return MicroBatchResult(loss, ended.detach(), (logits.argmax(-1) == targets).sum())


def rows_of(batch: Batch, rows: Tensor) -> Batch:
    """Some sequences of a batch."""
    if len(rows) == len(batch.inputs):
        return batch
    starts = None if batch.starts is None else batch.starts[rows]
    return Batch(batch.inputs[rows], batch.targets[rows], starts, batch.answers)
