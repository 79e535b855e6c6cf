"""The training loop, for pre-training and post-training alike. Interventions differ by their policy alone."""

from __future__ import annotations

import time
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from ssm.base.errors import CheckpointError, DataError
from ssm.base.files import make_folder, remove_leftovers, write_json
from ssm.base.progress import Progress
from ssm.base.provenance import provenance
from ssm.base.seeds import derived_seed
from ssm.data.batches import Batch, StreamBatches, WindowBatches
from ssm.data.store import TokenStore
from ssm.models.backbone import LanguageModel, build_model
from ssm.models.checkpoint import load_model, load_tensors, save_model
from ssm.models.device import device_name
from ssm.models.state import State
from ssm.specs.training import RunSpec, TrainingSpec
from ssm.training.checkpoint import FILE, load_checkpoint, save_checkpoint
from ssm.training.initial_state import build_policy
from ssm.training.metrics import SIDECAR, Metrics
from ssm.training.optimizer import build_optimizer, set_rates
from ssm.training.schedule import learning_rate, weight_decay

FLUSH_EVERY = 10  # steps between two looks at the loss


@dataclass(frozen=True)
class Interval:
    """When a checkpoint is due: after so many seconds, or (for tests and demonstrations) so many steps."""

    seconds: float = 60.0
    steps: int | None = None


def train(
    run: RunSpec,
    store: TokenStore,
    folder: Path,
    device: torch.device,
    parent: Path | None = None,
    interval: Interval | None = None,
) -> dict[str, Any]:
    """Train `run` in `folder`, resuming what a killed process left there; returns what run.json says.

    Leaves model.safetensors (the last good weights), metrics.parquet, snapshots/, checkpoint.safetensors and, last of
    all, run.json, whose status is "finished" or "diverged": divergence is a result, not a crash.

    Raises:
        CheckpointError: the parent is missing or another run's; the folder holds another run's checkpoint.
        DataError: the tokens are not those of the run.
    """
    return _Job(run, store, Path(folder), device, parent, interval or Interval()).work()


class _Job:
    """One run in one process."""

    def __init__(
        self,
        run: RunSpec,
        store: TokenStore,
        folder: Path,
        device: torch.device,
        parent: Path | None,
        interval: Interval,
    ):
        if store.spec != run.data:
            raise DataError(f"{store.folder}: holds the tokens of '{store.spec.id}', the run needs '{run.data.id}'")
        self.run, self.training, self.folder, self.device, self.interval = run, run.training, folder, device, interval
        make_folder(folder / "snapshots")
        remove_leftovers(folder)
        self.parent = parent
        self.model = _starting_weights(run, parent).to(device)
        self.parameters = self.model.parameters_count
        self.steps = self.training.budget.optimizer_steps(self.training.batch_tokens, self.parameters)
        self.peak = run.model.peak_lr * self.training.lr_scale
        self.optimizer = build_optimizer(self.model, self.training)
        self.policy = build_policy(self.training.initial_state, run.seed)
        self.metrics = Metrics(self.model.vocab_size)
        self.first, self.seconds = load_checkpoint(folder, run, self.model, self.optimizer, self.policy)
        self.metrics.resume(folder / SIDECAR, self.first)
        # Post-training reads in another order than pre-training did; all arms of one stage read in the same.
        order = derived_seed(run.seed, "order", run.stage)
        batches = StreamBatches if self.training.initial_state.policy == "tbtt" else WindowBatches
        self.batches = batches(store.train, self.training.context, self.training.batch_size, order)
        self.kept: dict[int, list[float]] = {}  # step -> the snapshots that are due then
        for fraction in self.training.snapshots:
            self.kept.setdefault(max(1, round(fraction * self.steps)), []).append(fraction)
        if self.training.compile:
            for layer in self.model.layers:
                layer.compile()

    def work(self) -> dict[str, Any]:
        diverged = None
        self.model.train()
        with Progress(f"train {self.run.id}", self.steps, "steps", "tokens") as progress:
            progress.resume_at(self.first)
            saved = clock = time.monotonic()
            for step in range(self.first + 1, self.steps + 1):
                self._step(step)
                now = time.monotonic()
                self.seconds, clock = self.seconds + now - clock, now
                progress.advance(1, self.training.batch_tokens, f"loss {self.metrics.last_loss:.3f}")
                due = step == self.steps or step in self.kept or self._checkpoint_due(step, saved)
                if due or step % FLUSH_EVERY == 0:
                    diverged = self.metrics.flush()
                    if diverged:
                        break
                for fraction in self.kept.get(step, ()):
                    save_model(snapshot_path(self.folder, fraction), self.model, self.run, step)
                if due:
                    self._save(step)
                    saved = time.monotonic()
        return self._finish(diverged)

    def _step(self, step: int) -> None:
        """One optimizer step over the batch, in micro-batches."""
        training = self.training
        lr = learning_rate(training, self.peak, step, self.steps)
        decay = weight_decay(training, lr, self.peak)
        set_rates(self.optimizer, lr, decay)
        batch = self.batches.batch(step - 1)
        start = self.policy.start(step, training.batch_size, self.device)
        loss, ended = torch.zeros((), device=self.device), []
        self.optimizer.zero_grad(set_to_none=True)
        for rows in torch.arange(training.batch_size).split(training.micro_batch_size):
            part = loss_of(self.model, _rows(batch, rows), start and start.select(rows), training, self.device)
            share = len(rows) / training.batch_size
            (part.loss * share).backward()
            loss += part.loss.detach() * share
            ended.append(part.ended)
        self.policy.learn(ended[0] if len(ended) == 1 else _joined(ended))
        norm = torch.nn.utils.clip_grad_norm_(self.model.parameters(), training.clip_norm)
        self.optimizer.step()
        self.metrics.add(
            step=step,
            tokens=step * training.batch_tokens,
            loss=loss,
            grad_norm=norm,
            lr=lr,
            weight_decay=decay,
            state_norm=0.0 if start is None else start.norm().mean(),
        )

    def _checkpoint_due(self, step: int, saved: float) -> bool:
        if self.interval.steps is not None:
            return step % self.interval.steps == 0
        return time.monotonic() - saved >= self.interval.seconds

    def _save(self, step: int) -> None:
        """Metrics first: rows past the checkpoint are cut on resume, missing rows could not be made up."""
        self.metrics.write(self.folder / SIDECAR, {"run": self.run.id, "partial": True})
        save_checkpoint(self.folder, self.run, step, self.seconds, self.model, self.optimizer, self.policy)

    def _finish(self, diverged: str | None) -> dict[str, Any]:
        done = len(self.metrics.rows)
        good = self.steps if diverged is None else self._restore_last_good()
        save_model(self.folder / "model.safetensors", self.model, self.run, good)
        tokens = done * self.training.batch_tokens
        message = f"diverged: {diverged}; the weights are those of step {good}" if diverged else "finished"
        record = {
            "status": "finished" if diverged is None else "diverged",
            "message": message,
            "steps": done,
            "tokens": tokens,
            "parameters": self.parameters,
            "seconds": round(self.seconds, 3),
            "tokens_per_second": round(tokens / max(self.seconds, 1e-9), 1),
            "device": device_name(self.device),
            "spec": self.run.content(),
            "provenance": provenance(),
        }
        self.metrics.write(self.folder / "metrics.parquet", provenance(run=self.run.content(), seed=self.run.seed))
        write_json(self.folder / "run.json", record)
        return record

    def _restore_last_good(self) -> int:
        """Put back the weights of the last checkpoint, or those that the run started from."""
        path = self.folder / FILE
        if not path.exists():
            self.model.load_state_dict(_starting_weights(self.run, self.parent).state_dict())
            return 0
        tensors, header = load_tensors(path)
        weights = {n.removeprefix("model/"): t for n, t in tensors.items() if n.startswith("model/")}
        self.model.load_state_dict(weights)
        return int(header["step"])


@dataclass(frozen=True)
class Part:
    """Loss (a scalar with its graph) and final state (detached) of one micro-batch."""

    loss: Tensor
    ended: State


def loss_of(
    model: LanguageModel, batch: Batch, start: State | None, training: TrainingSpec, device: torch.device
) -> Part:
    """Mean cross-entropy, nats per token, of a micro-batch from its initial state."""
    inputs, targets = batch.inputs.to(device), batch.targets.to(device)  # (B, T)
    resets = None
    if batch.starts is not None and getattr(training.initial_state, "reset_at_documents", False):
        resets = batch.starts.to(device)  # (B, T)
    autocast = training.precision == "bfloat16"
    with torch.autocast(device.type, torch.bfloat16) if autocast else nullcontext():
        logits, ended = model(inputs, start, resets)  # (B, T, V)
    loss = F.cross_entropy(logits.float().flatten(0, 1), targets.flatten())
    return Part(loss, ended.detach())


def snapshot_path(folder: Path, fraction: float) -> Path:
    """Where the weights at `fraction` of a run's steps lie."""
    return folder / "snapshots" / f"at{fraction:g}.safetensors"


def _starting_weights(run: RunSpec, parent: Path | None) -> LanguageModel:
    """A fresh initialization, or the parent's final weights."""
    if run.parent is None:
        return build_model(run.model, run.data.vocab_size, run.seed)
    if parent is None:
        raise CheckpointError(f"this run continues '{run.parent.id}': give its folder as --parent")
    path = parent / "model.safetensors"
    model, trained = load_model(path)
    if trained != run.parent:
        raise CheckpointError(f"{path}: holds the run '{trained.id}', expected '{run.parent.id}'")
    return model


def _rows(batch: Batch, rows: Tensor) -> Batch:
    if len(rows) == len(batch.inputs):
        return batch
    starts = None if batch.starts is None else batch.starts[rows]
    return Batch(batch.inputs[rows], batch.targets[rows], starts)


def _joined(states: list[State]) -> State:
    """The states of micro-batches as one batch."""
    return State(
        tuple(
            {name: torch.cat([state.layers[i][name] for state in states]) for name in layer}
            for i, layer in enumerate(states[0].layers)
        )
    )
