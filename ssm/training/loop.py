"""The training loop, for pre-training and post-training alike. Interventions differ by their policy alone."""

from __future__ import annotations

import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from ssm.base.files import make_folder, only_one, remove_leftovers, write_json
from ssm.base.progress import Progress
from ssm.base.provenance import provenance
from ssm.base.seeds import derived_seed
from ssm.data.batches import StreamBatches, WindowBatches
from ssm.data.store import TokenStore
from ssm.models.backbone import LanguageModel
from ssm.models.checkpoint import save_model, snapshot_path, snapshot_step
from ssm.models.device import device_name
from ssm.specs.training import RunSpec
from ssm.training.checkpoint import load_checkpoint, save_checkpoint
from ssm.training.divergence import LastGood
from ssm.training.initial_state import build_policy
from ssm.training.metrics import SIDECAR, Metrics
from ssm.training.optimizer import build_optimizer, set_rates
from ssm.training.origin import origin_of, read_record, starting_weights
from ssm.training.schedule import learning_rate, weight_decay
from ssm.training.step import joined, loss_of, rows_of

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
    store.insist_on(run.data, "the run")
    model = starting_weights(run, parent).to(device)
    folder = Path(folder)
    make_folder(folder / "snapshots")
    with only_one(folder):
        return _Job(run, store, folder, device, model, parent, interval or Interval()).work()


class _Job:
    """One run in one process."""

    def __init__(
        self,
        run: RunSpec,
        store: TokenStore,
        folder: Path,
        device: torch.device,
        model: LanguageModel,
        parent: Path | None,
        interval: Interval,
    ):
        self.run, self.training, self.folder, self.device, self.interval = run, run.training, folder, device, interval
        self.model, self.parent = model, parent
        self.origin = origin_of(store, parent)
        self.parameters = self.model.parameters_count
        self.steps = self.training.budget.optimizer_steps(self.training.batch_tokens, self.parameters)
        self.peak = run.model.peak_lr * self.training.lr_scale
        self.optimizer = build_optimizer(self.model, self.training)
        self.policy = build_policy(self.training.initial_state, run.seed)
        self.metrics = Metrics(self.model.vocab_size)
        self.good = LastGood(folder, run, self.origin, self.steps)
        remove_leftovers(folder)
        self.first, self.seconds = load_checkpoint(folder, run, self.origin, self.model, self.optimizer, self.policy)
        self.metrics.resume(folder / SIDECAR, self.first)
        # Post-training reads in another order than pre-training did; all arms of one stage read in the same.
        order = derived_seed(run.seed, "order", run.stage)
        batches = StreamBatches if self.training.initial_state.policy == "tbtt" else WindowBatches
        self.batches = batches(store.train, self.training.context, self.training.batch_size, order)
        self.snapshots = [(snapshot_step(at, self.steps), at) for at in self.training.snapshots]
        self.model.recompute = self.training.activation_checkpointing
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
                snapshots = [at for due, at in self.snapshots if due == step]
                due = step == self.steps or self._checkpoint_due(step, saved)
                if due or snapshots or self.good.due(step) or step % FLUSH_EVERY == 0:
                    diverged = self.metrics.flush()
                    if diverged:
                        break
                for at in snapshots:
                    self._save_weights(snapshot_path(self.folder, at), step)
                if self.good.due(step):
                    self.good.keep(self.model, step)
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
            part = loss_of(self.model, rows_of(batch, rows), start and start.select(rows), training, self.device)
            share = len(rows) / training.batch_size
            (part.loss * share).backward()
            loss += part.loss.detach() * share
            if self.policy.learns:
                ended.append(part.ended)
        if self.policy.learns:
            self.policy.learn(joined(ended))
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
        save_checkpoint(self.folder, self.run, step, self.seconds, self.origin, self.model, self.optimizer, self.policy)

    def _save_weights(self, path: Path, step: int) -> None:
        save_model(path, self.model, self.run, step, self.origin)

    def _finish(self, diverged: str | None) -> dict[str, Any]:
        done = len(self.metrics.rows)
        step = self.steps
        if diverged is not None:
            step = self._go_back(done)
            for due, at in self.snapshots:
                if due >= done:  # never reached: what comes after a divergence is its last good weights
                    self._save_weights(snapshot_path(self.folder, at), step)
        self._save_weights(self.folder / "model.safetensors", step)
        record = self._record(diverged, done, step)
        self.metrics.write(self.folder / "metrics.parquet", provenance(run=self.run.content(), seed=self.run.seed))
        write_json(self.folder / "run.json", record)
        if diverged is None:
            self.good.forget()
        return record

    def _go_back(self, diverged_at: int) -> int:
        """Put back the last good weights, or those that the run started from; returns their step."""
        step = self.good.restore(self.model, diverged_at)
        if not step:
            self.model.load_state_dict(starting_weights(self.run, self.parent).state_dict())
        return step

    def _record(self, diverged: str | None, done: int, step: int) -> dict[str, Any]:
        """What run.json says. "diverged" is also set where the parent had diverged: no claim may rest on either."""
        message = f"diverged: {diverged}; the weights are those of step {step}" if diverged else "finished"
        inherited = read_record(self.parent)["diverged"] if self.parent else None
        tokens = done * self.training.batch_tokens
        return {
            "status": "diverged" if diverged else "finished",
            "message": message,
            "diverged": message if diverged else inherited and f"its parent {inherited}",
            "steps": done,
            "budget_steps": self.steps,
            "tokens": tokens,
            "parameters": self.parameters,
            "seconds": round(self.seconds, 3),
            "tokens_per_second": round(tokens / max(self.seconds, 1e-9), 1),
            "device": device_name(self.device),
            "origin": self.origin,
            "spec": self.run.content(),
            "provenance": provenance(),
        }
