"""Decides when a run writes checkpoints, snapshots and its last good weights, and when it stops early."""

from __future__ import annotations

import math
import shutil
import time
from dataclasses import dataclass
from pathlib import Path
from typing import NoReturn

from torch import Tensor

from ssm.base.exit_codes import REQUEUE, TIME_OVER
from ssm.base.records import CHECKPOINT_METRICS
from ssm.base.stopping import Preempted, StopRequest
from ssm.models.trainable import TrainableModel
from ssm.models.weights_file import load_tensors, load_weights, save_weights, snapshot_path, snapshot_step
from ssm.specs.training import RunSpec
from ssm.training.checkpoint_file import load_checkpoint, save_checkpoint
from ssm.training.job import Job
from ssm.training.metrics import PATIENCE, Metrics
from ssm.training.parallel import full_tensors
from ssm.training.step import Stepper

FLUSH_EVERY = 10  # steps between two checks of the loss, the clock and signals
SAVING = 0.02  # largest share of the training time for checkpoints that are due by the clock
SLOW = 0.5  # seconds: slower steps are checked one by one


@dataclass(frozen=True)
class CheckpointSchedule:
    """When a checkpoint is due.

    Attributes:
        seconds: after this time, or later if checkpoints take long to write (SAVING).
        steps: after this number of steps, instead of `seconds`. For tests and demonstrations.
        until: on the clock of `time.monotonic`. Training writes a checkpoint and stops at the first check before a
            step that, with the checkpoint after it, would end later. Fast steps have a check after every FLUSH_EVERY
            of them.
    """

    seconds: float = 60.0
    steps: int | None = None
    until: float | None = None


class LastGood:
    """Keeps good weights for the case that a run diverges: those of every tenth of a run, the last two at a time.

    A run that diverges at step d returns to the last kept weights that are at least PATIENCE steps older than d. The
    loss may have risen for that long before the run counts as diverged. Checkpoints cannot replace them: these are due
    by the clock, so two runs of one spec would end with different weights.
    """

    def __init__(self, folder: Path, run: RunSpec, origin: str, steps: int):
        self.folder, self.run, self.origin = folder / "good", run, origin
        self.stride = max(PATIENCE, math.ceil(steps / 10))

    def due(self, step: int) -> bool:
        """Whether to keep the weights of `step`."""
        return step % self.stride == 0

    def keep(self, weights: dict[str, Tensor], step: int) -> None:
        """Keep the weights of `step`, and drop all but the last two."""
        save_weights(self._path(step), weights, self.run, step, self.origin)
        self._path(step - 2 * self.stride).unlink(missing_ok=True)

    def restore(self, model: TrainableModel, diverged_at: int) -> int:
        """Load the last good weights into `model` and return their step, 0 if none are old enough.

        With other rounding, as on another GPU, a resumed run can diverge long before the step at which it was killed.
        The weights for that are dropped already, and it returns to its start.
        """
        step = max(0, diverged_at - PATIENCE) // self.stride * self.stride
        path = self._path(step)
        if not path.exists():  # step 0 has none
            return 0
        tensors, _ = load_tensors(path)
        load_weights(model, tensors, str(path))
        return step

    def forget(self) -> None:
        """Delete the kept weights after a run without divergence."""
        shutil.rmtree(self.folder, ignore_errors=True)

    def _path(self, step: int) -> Path:
        return self.folder / f"{step}.safetensors"


class Checkpointer:
    """Checks every few steps what is due, and writes it.

    Attributes:
        seconds: training time of the run so far, all processes that resumed it included. The time to write checkpoints
            and other weights is no part of it.
        slow: steps take long. Each of them is checked, and training can stop between two micro-batches.
    """

    def __init__(self, job: Job, stepper: Stepper, metrics: Metrics, schedule: CheckpointSchedule):
        self.job, self.stepper, self.metrics, self.schedule = job, stepper, metrics, schedule
        self.good = LastGood(job.folder, job.run, job.origin, job.steps)
        self.snapshots = [(snapshot_step(at, job.steps), at) for at in job.training.snapshots]
        self.seconds = 0.0
        self.slow = True  # so that the first step is checked
        self.writing = 0.0  # seconds: duration of the last checkpoint
        self.taken = 0.0  # seconds: duration of the last step, with the time to fetch losses
        self.now = self.saved = time.monotonic()  # when `seconds` was updated, and the end of the last checkpoint

    def resume(self) -> int:
        """Load the last checkpoint and return its step."""
        step, self.seconds = load_checkpoint(self.job, self.stepper)
        self.metrics.resume(self.job.folder / CHECKPOINT_METRICS, step)
        return step

    def start_clock(self) -> None:
        """Start to measure the training time."""
        self.now = self.saved = time.monotonic()

    def count_step(self) -> None:
        """Add the time of the step that has just ended. A GPU may still work on it."""
        self.taken = 0.0
        self._add_time()

    def should_check(self, step: int) -> bool:
        """Whether to fetch the losses and check what is due after `step`."""
        return self.slow or step % FLUSH_EVERY == 0 or self._weights_due(step) or self._checkpoint_due(step)

    def save_due(self, step: int, stop: StopRequest) -> None:
        """Write what is due after `step`. The caller has fetched its loss and checked that it is sound.

        Raises:
            Preempted: a process received a signal, or the time is over. The checkpoint of `step` is written.
        """
        self._add_time()
        main, until = self.job.group.main, self.schedule.until
        stopped, over, by_clock, self.slow = self.job.group.any_of(
            stop.signal is not None,
            main and until is not None and self.now + self.taken + self.writing >= until,
            main and self._due_by_clock(),
            main and self.taken > SLOW,  # a step of another process may have waited for a checkpoint of the main one
        )
        if self._weights_due(step):
            self._keep_weights(step)
        if by_clock or stopped or over or self._checkpoint_due(step):
            begun = time.monotonic()
            self.save(step)
            self.saved = time.monotonic()
            self.writing = self.saved - begun
        self.now = time.monotonic()  # writing is no part of the next step
        if (stopped or over) and step < self.job.steps:
            self._leave(step, stop.signal or "a signal" if stopped else None)

    def preempt(self, step: int, stop: StopRequest) -> NoReturn:
        """Write the checkpoint of `step`, the last complete one, and stop."""
        self.save(step)
        self._leave(step, stop.signal or "a signal")

    def save(self, step: int) -> None:
        """Write the metrics first: resuming drops rows after the checkpoint, but cannot restore missing ones."""
        job = self.job
        if job.group.main:
            self.metrics.write(job.folder / CHECKPOINT_METRICS, {"run": job.run.id, "partial": True})
        save_checkpoint(job, self.stepper, step, self.seconds)

    def _add_time(self) -> None:
        now = time.monotonic()
        self.taken += now - self.now
        self.seconds += now - self.now
        self.now = now

    def _weights_due(self, step: int) -> bool:
        return self.good.due(step) or any(due == step for due, _ in self.snapshots)

    def _checkpoint_due(self, step: int) -> bool:
        return step == self.job.steps or (self.schedule.steps is not None and step % self.schedule.steps == 0)

    def _due_by_clock(self) -> bool:
        seconds = max(self.schedule.seconds, self.writing / SAVING)
        return self.schedule.steps is None and time.monotonic() - self.saved >= seconds

    def _keep_weights(self, step: int) -> None:
        job = self.job
        weights = full_tensors(self.stepper.model.state_dict(), job.group)
        if not job.group.main:
            return
        for at in [at for due, at in self.snapshots if due == step]:
            save_weights(snapshot_path(job.folder, at), weights, job.run, step, job.origin)
        if self.good.due(step):
            self.good.keep(weights, step)

    def _leave(self, step: int, by: str | None) -> NoReturn:
        """Stop, because of a signal or of the time limit (`by` is None). The checkpoint of `step` is written."""
        job = self.job
        job.group.wait()  # until the main process has written the checkpoint
        raise Preempted(
            f"{job.run.id}: stopped by {by or 'its time limit'} at step {step} of {job.steps}; its checkpoint is "
            "written. Run the same command to continue",
            together=True,
            code=REQUEUE if by else TIME_OVER,
        )
