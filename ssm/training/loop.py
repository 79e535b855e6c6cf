"""The training loop, for pre-training and post-training alike. Interventions differ by their policy alone."""

from __future__ import annotations

import time
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn

import torch
from torch import Tensor

from ssm.base import progress as progress_file
from ssm.base.exit_codes import REQUEUE, TIME_OVER
from ssm.base.files import make_folder, only_one, remove_leftovers, write_json
from ssm.base.progress import Progress
from ssm.base.provenance import provenance
from ssm.base.seeds import derived_seed
from ssm.base.stopping import Preempted, StopRequest, stop_requests
from ssm.data.batches import Batch, StreamBatches, WindowBatches
from ssm.data.store import TokenStore
from ssm.models.backbone import LanguageModel
from ssm.models.checkpoint import RECORD, digests, save_weights, snapshot_path, snapshot_step
from ssm.models.device import device_name
from ssm.specs.training import RunSpec
from ssm.training.checkpoint import load_checkpoint, save_checkpoint
from ssm.training.divergence import LastGood
from ssm.training.gradients import gradients_of
from ssm.training.initial_states import build_policy
from ssm.training.machine import Machine
from ssm.training.metrics import SIDECAR, Metrics
from ssm.training.optimizer import build_optimizer, set_rates
from ssm.training.origin import origin_of, read_record, starting_weights
from ssm.training.parallel import spread, whole_tensors
from ssm.training.schedule import learning_rate, weight_decay
from ssm.training.step import loss_of, rows_of

FLUSH_EVERY = 10  # steps between two looks at the loss, at the clock and for a signal
SAVING = 0.02  # of the time, which checkpoints may take that are due by the clock
SLOW = 0.5  # seconds: steps that take as long are looked at one by one


@dataclass(frozen=True)
class Interval:
    """When a checkpoint is due: after so many seconds, or (for tests and demonstrations) so many steps.

    Seconds are more where a checkpoint takes long to write: see SAVING.

    With `until`, a time of `time.monotonic`, training ends itself with a checkpoint before a step that would end later.
    """

    seconds: float = 60.0
    steps: int | None = None
    until: float | None = None


def train(
    run: RunSpec,
    store: TokenStore,
    folder: Path,
    device: torch.device,
    parent: Path | None = None,
    interval: Interval | None = None,
    machine: Machine | None = None,
) -> dict[str, Any]:
    """Train `run` in `folder`, resuming what a killed process left there; returns what run.json says.

    Leaves model.safetensors (the last good weights), metrics.parquet, snapshots/, checkpoint.safetensors and, last of
    all, run.json, whose status is "finished" or "diverged": divergence is a result, not a crash.

    Raises:
        CheckpointError: the parent is missing or another run's; the folder holds another run's checkpoint.
        ConfigError: the batch cannot be spread over the processes.
        DataError: the tokens are not those of the run.
        Preempted: SIGTERM or SIGUSR1 came while it trained, or its time is over; a checkpoint of the last step is
            written.
    """
    store.insist_on(run.data, "the run")
    model = starting_weights(run, parent).to(device)
    folder, machine = Path(folder), machine or Machine()
    with ExitStack() as held:
        if machine.team.main:
            make_folder(folder / "snapshots")
            held.enter_context(only_one(folder))
            remove_leftovers(folder)
        machine.team.wait()  # until no other job works here
        job = _Job(run, store, folder, device, model, parent, interval or Interval(), machine)
        try:
            return job.work()
        finally:
            job.forward = job.gradients.forward = job.model  # DDP holds connections, and a traceback holds the job


class _Job:
    """One run in one process, or in one of several."""

    def __init__(
        self,
        run: RunSpec,
        store: TokenStore,
        folder: Path,
        device: torch.device,
        model: LanguageModel,
        parent: Path | None,
        interval: Interval,
        machine: Machine,
    ):
        self.run, self.training, self.folder, self.device, self.interval = run, run.training, folder, device, interval
        self.model, self.parent, self.team = model, parent, machine.team
        self.mine, self.micro_batch_size = machine.share(self.training)
        self.origin = origin_of(store, parent)
        self.parameters = self.model.parameters_count
        self.steps = self.training.budget.optimizer_steps(self.training.batch_tokens, self.parameters)
        self.peak = run.model.peak_lr * self.training.lr_scale
        self.model.recompute = self.training.activation_checkpointing
        if self.training.compile:
            for layer in self.model.layers:
                layer.compile()
        self.forward = spread(self.model, self.team, device, machine.shard)
        self.gradients = gradients_of(self.model, self.forward, self.team)
        self.optimizer = build_optimizer(self.model, self.training)
        self.policy = build_policy(self.training.initial_state, run.seed, self.team)
        self.metrics = Metrics(self.model.vocab_size, self.team)
        self.good = LastGood(folder, run, self.origin, self.steps)
        self.first, self.seconds = load_checkpoint(folder, run, self.origin, self.model, self.optimizer, self.policy)
        self.metrics.resume(folder / SIDECAR, self.first)
        # Post-training reads in another order than pre-training did; all arms of one stage read in the same.
        order = derived_seed(run.seed, "order", run.stage)
        batches = StreamBatches if self.training.initial_state.order == "stream" else WindowBatches
        self.batches = batches(store.train, self.training.context, self.training.batch_size, order)
        self.snapshots = [(snapshot_step(at, self.steps), at) for at in self.training.snapshots]
        self.slow = True  # the first step is looked at
        self.saving = 0.0  # seconds that the last checkpoint took

    def work(self) -> dict[str, Any]:
        diverged = None
        self.model.train()
        self._settle()
        title, shown = f"train {self.run.id}", self.team.main
        beats = self.folder / progress_file.FILE
        with (
            stop_requests() as stop,
            Progress(title, self.steps, "steps", "tokens", shown=shown, file=beats) as progress,
        ):
            progress.resume_at(self.first)
            saved = clock = time.monotonic()
            for step in range(self.first + 1, self.steps + 1):
                if not self._step(step, stop):
                    diverged = self.metrics.flush()
                    if diverged:
                        break
                    self._save(step - 1)
                    self._leave(step - 1, stop.signal or "a signal")
                now = time.monotonic()
                seconds, clock = now - clock, now
                self.seconds += seconds
                note = f"loss {self.metrics.last_loss:.3f}" if self.metrics.rows else ""  # none is fetched yet
                progress.advance(1, self.training.batch_tokens, note)
                snapshots = [at for due, at in self.snapshots if due == step]
                due = step == self.steps or self._due_by_steps(step)
                if not (due or snapshots or self.good.due(step) or step % FLUSH_EVERY == 0 or self.slow):
                    continue
                diverged = self.metrics.flush()
                if diverged:
                    break
                main = self.team.main
                stopped, over, by_clock, self.slow = self.team.any_of(
                    stop.signal is not None,
                    main and self._over_by(now + seconds),
                    main and self._due_by_clock(saved),
                    seconds > SLOW,
                )
                if snapshots or self.good.due(step):
                    self._keep_weights(step, snapshots)
                if due or by_clock or stopped or over:
                    begun = time.monotonic()
                    self._save(step)
                    saved = time.monotonic()
                    self.saving = saved - begun
                if (stopped or over) and step < self.steps:
                    self._leave(step, stop.signal or "a signal" if stopped else None)
        return self._finish(diverged)

    def _settle(self) -> None:
        """A forward and backward pass that is forgotten.

        DDP lays its buckets anew behind the first one. Sums of gradients are then made in the same order at every step
        of a run, whether it has been resumed or not.
        """
        if self.forward is not self.model:
            tokens = torch.zeros(self.micro_batch_size, self.training.context, dtype=torch.int64)
            loss_of(self.forward, Batch(tokens, tokens), None, self.training, self.device).loss.backward()

    def _step(self, step: int, stop: StopRequest) -> bool:
        """One optimizer step over the batch, in micro-batches. False: told to end between two of them, nothing is done.

        Only steps that take long are left in the middle: to ask all processes costs time.
        """
        training = self.training
        lr = learning_rate(training, self.peak, step, self.steps)
        decay = weight_decay(training, lr, self.peak)
        set_rates(self.optimizer, lr, decay)
        batch = self.batches.batch(step - 1, self.mine)
        start = self.policy.start(step, training.batch_size, self.device)
        loss = torch.zeros((), device=self.device)
        self.gradients.clear()
        mine = torch.arange(len(batch.inputs))
        for rows in mine.split(self.micro_batch_size):
            if self.slow and len(mine) > len(rows) and self.team.any_of(stop.signal is not None)[0]:
                return False
            self.gradients.share(bool(rows[-1] == mine[-1]))
            part = loss_of(self.forward, rows_of(batch, rows), start and start.select(rows), training, self.device)
            share = len(rows) / len(mine)
            (part.loss * share).backward()
            loss += part.loss.detach() * share
            self.policy.see(part.ended)
        self.policy.learn()
        norm = self.gradients.clip(training.clip_norm)
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
        return True

    def _due_by_steps(self, step: int) -> bool:
        return self.interval.steps is not None and step % self.interval.steps == 0

    def _due_by_clock(self, saved: float) -> bool:
        seconds = max(self.interval.seconds, self.saving / SAVING)
        return self.interval.steps is None and time.monotonic() - saved >= seconds

    def _over_by(self, then: float) -> bool:
        return self.interval.until is not None and then >= self.interval.until

    def _save(self, step: int) -> None:
        """Metrics first: rows past the checkpoint are cut on resume, missing rows could not be made up."""
        if self.team.main:
            self.metrics.write(self.folder / SIDECAR, {"run": self.run.id, "partial": True})
        run, model, optimizer, policy, team = self.run, self.model, self.optimizer, self.policy, self.team
        save_checkpoint(self.folder, run, step, self.seconds, self.origin, model, optimizer, policy, team)

    def _keep_weights(self, step: int, snapshots: list[float]) -> None:
        weights = whole_tensors(self.model.state_dict(), self.team)
        if self.team.main:
            for at in snapshots:
                save_weights(snapshot_path(self.folder, at), weights, self.run, step, self.origin)
            if self.good.due(step):
                self.good.keep(weights, step)

    def _leave(self, step: int, by: str | None) -> NoReturn:
        """By a signal to this process or another, or the time is over; the checkpoint of `step` is written."""
        self.team.wait()  # main has written it
        raise Preempted(
            f"{self.run.id}: stopped by {by or 'its time limit'} at step {step} of {self.steps}; its checkpoint is "
            "written, the same command goes on from there",
            together=True,
            code=REQUEUE if by else TIME_OVER,
        )

    def _finish(self, diverged: str | None) -> dict[str, Any]:
        done = len(self.metrics.rows)
        step = self.steps
        if diverged is None:
            weights = whole_tensors(self.model.state_dict(), self.team)
        else:
            step, weights = self._last_good(done)
        record = self._record(diverged, done, step)
        if self.team.main:
            # Never reached by a diverged run: what comes after a divergence is its last good weights.
            missing = [snapshot_path(self.folder, at) for due, at in self.snapshots if diverged and due >= done]
            for path in (*missing, self.folder / "model.safetensors"):
                save_weights(path, weights, self.run, step, self.origin)
            self.metrics.write(self.folder / "metrics.parquet", provenance(run=self.run.content(), seed=self.run.seed))
            record["weights"] = digests(self.folder, self.run)
            write_json(self.folder / RECORD, record)
            if diverged is None:
                self.good.forget()
        return record

    def _last_good(self, diverged_at: int) -> tuple[int, dict[str, Tensor]]:
        """The last good weights and their step; those that the run started from and 0 without any."""
        model = starting_weights(self.run, self.parent)
        step = self.good.restore(model, diverged_at)
        return step, dict(model.state_dict())

    def _record(self, diverged: str | None, done: int, step: int) -> dict[str, Any]:
        """What run.json says. "diverged" is also set where the parent had diverged: no claim may rest on either."""
        message = f"diverged: {diverged}; the weights are those of step {step}" if diverged else "finished"
        parent = read_record(self.parent) if self.parent else {}
        inherited = parent.get("diverged")
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
            **({"published": parent["published"]} if "published" in parent else {}),
            "spec": self.run.content(),
            "provenance": provenance(),
        }
