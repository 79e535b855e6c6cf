"""One optimizer step: the batch in micro-batches, forward and backward, and what the policy learns from them."""

from __future__ import annotations

from contextlib import nullcontext
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ssm.base.seeds import derived_seed
from ssm.base.stopping import StopRequest
from ssm.data.batches import NOT_ASKED, Batch
from ssm.data.reading import training_batches
from ssm.data.store import TokenStore
from ssm.models.state import State
from ssm.models.trainable import TrainableModel
from ssm.specs.training import TrainingSpec
from ssm.training.gradients import gradients_of
from ssm.training.initial_states import build_policy
from ssm.training.job import Job
from ssm.training.machine import Machine
from ssm.training.optimizer import build_optimizer, set_rates
from ssm.training.parallel import spread
from ssm.training.schedule import learning_rate, weight_decay


class Stepper:
    """What makes the steps of a run: its batches, its model and the model's gradients, its optimizer, its policy."""

    def __init__(self, job: Job, store: TokenStore, model: TrainableModel, machine: Machine):
        self.job, self.model, training = job, model, job.training
        self.mine, self.micro_batch_size = machine.share(training)
        self.peak = job.run.model.peak_lr * training.lr_scale
        model.recompute = training.activation_checkpointing
        if training.compile:
            for layer in model.layers:
                layer.compile()
        self.forward = spread(model, job.group, job.device, machine.shard)
        self.gradients = gradients_of(model, self.forward, job.group)
        self.optimizer = build_optimizer(model, training)
        self.endless = job.run.model.endless  # layers of whose state the next batch is given nothing
        self.policy = build_policy(training.initial_state, job.run.seed, job.group)
        # Post-training reads in another order than pre-training did; all arms of one stage read in the same.
        order = derived_seed(job.run.seed, "order", job.run.stage)
        stream = training.initial_state.order == "stream"
        self.batches = training_batches(store, training.context, training.batch_size, stream, order)

    def warm_up(self) -> None:
        """Warm up: a forward and backward pass whose gradients are dropped.

        DDP lays its buckets anew behind the first one. Sums of gradients are then made in the same order at every step
        of a run, whether it has been resumed or not.
        """
        if self.forward is not self.model:
            micro = rows_of(self.batches.batch(0, self.mine), torch.arange(self.micro_batch_size))
            loss_of(self.forward, micro, None, self.job.training, self.job.device).loss.backward()

    def train_step(self, step: int, stop: StopRequest | None) -> dict[str, Any] | None:
        """Step number `step`, from 1; returns its row of metrics, of which a device may still have to make the values.

        With `stop` all processes ask each other between micro-batches whether one was told to end, which costs time.
        None: one was; nothing is done then.
        """
        training = self.job.training
        lr = learning_rate(training, self.peak, step, self.job.steps)
        decay = weight_decay(training, lr, self.peak)
        set_rates(self.optimizer, lr, decay)
        batch = self.batches.batch(step - 1, self.mine)
        start = self.policy.start(step, training.batch_size, self.job.device)
        loss, right = torch.zeros((), device=self.job.device), torch.zeros((), device=self.job.device)
        asked = self._asked(batch)
        self.gradients.clear()
        mine = torch.arange(len(batch.inputs))
        for rows in mine.split(self.micro_batch_size):
            if stop and len(mine) > len(rows) and self.job.group.any_of(stop.signal is not None)[0]:
                return None
            self.gradients.share(bool(rows[-1] == mine[-1]))
            micro = rows_of(batch, rows)
            part = loss_of(self.forward, micro, start and start.select(rows), training, self.job.device)
            share = micro.asked / asked
            (part.loss * share).backward()
            loss += part.loss.detach() * share
            right += part.right
            self.policy.see(part.ended.without(self.endless))
        self.policy.learn()
        norm = self.gradients.clip(training.clip_norm)
        self.optimizer.step()
        accuracy = {"accuracy": right / asked} if batch.answers else {}
        return accuracy | {
            "step": step,
            "tokens": step * training.batch_tokens,
            "loss": loss,
            "grad_norm": norm,
            "lr": lr,
            "weight_decay": decay,
            "state_norm": 0.0 if start is None else start.norm().mean(),
        }

    def _asked(self, batch: Batch) -> float:
        """How many targets of the whole batch count, a process: gradients and metrics are means over processes.

        Of a text every target counts, so that there are as many in every process.
        """
        if not batch.answers:
            return batch.asked
        return int(self.job.group.total(torch.tensor(batch.asked))) / self.job.group.size

    def close(self) -> None:
        """Drop DDP's wrapper, which holds connections: a traceback holds the stepper."""
        self.forward = self.gradients.forward = self.model


@dataclass(frozen=True)
class MicroBatchResult:
    """One micro-batch.

    Attributes:
        loss: a scalar with its graph.
        ended: the final state, detached.
        right: how many answers' tokens are the most probable ones; 0 where nothing is asked.
    """

    loss: Tensor
    ended: State
    right: Tensor | int = 0


def loss_of(
    model: nn.Module, batch: Batch, start: State | None, training: TrainingSpec, device: torch.device
) -> MicroBatchResult:
    """A micro-batch from its initial state; `model` calls a model that can be trained.

    The loss is the mean cross-entropy, nats, over the targets that count: 0 where none does.
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
    places = (batch.targets.flatten() != NOT_ASKED).nonzero()[:, 0].to(device)
    logits, targets = logits[places].float(), targets[places]  # (asked, V), (asked,)
    loss = F.cross_entropy(logits, targets) if len(places) else logits.sum()
    return MicroBatchResult(loss, ended.detach(), (logits.argmax(-1) == targets).sum())


def rows_of(batch: Batch, rows: Tensor) -> Batch:
    """Some of a batch's sequences."""
    if len(rows) == len(batch.inputs):
        return batch
    starts = None if batch.starts is None else batch.starts[rows]
    return Batch(batch.inputs[rows], batch.targets[rows], starts, batch.answers)
