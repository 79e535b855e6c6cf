"""Checkpointing: when checkpoints, snapshots and the last good weights are written, and when a run is preempted."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import NoReturn

from ssm.base.exit_codes import REQUEUE, TIME_OVER
from ssm.base.stopping import Preempted, StopRequest
from ssm.models.checkpoint import save_weights, snapshot_path, snapshot_step
from ssm.training.checkpoint import load_checkpoint, save_checkpoint
from ssm.training.divergence import LastGood
from ssm.training.job import Job
from ssm.training.metrics import SIDECAR, Metrics
from ssm.training.parallel import whole_tensors
from ssm.training.step import Stepper

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


class Checkpointer:
    """Checks every few steps what is due, and writes it.

    Attributes:
        seconds: that the run has trained so far, in this process and those before it.
        slow: steps take long, so that each is checked, and may be preempted between two micro-batches.
    """

    def __init__(self, job: Job, stepper: Stepper, metrics: Metrics, interval: Interval):
        self.job, self.stepper, self.metrics, self.interval = job, stepper, metrics, interval
        self.good = LastGood(job.folder, job.run, job.origin, job.steps)
        self.snapshots = [(snapshot_step(at, job.steps), at) for at in job.training.snapshots]
        self.seconds = 0.0
        self.slow = True  # the first step is looked at
        self.writing = 0.0  # seconds that the last checkpoint took
        self.taken = 0.0  # seconds that the last step took, from the end of the one before
        self.now = self.saved = time.monotonic()  # at the end of the last step, and of the last checkpoint

    def resume(self) -> int:
        """Load the last checkpoint; returns the last step that is done."""
        job, stepper = self.job, self.stepper
        step, self.seconds = load_checkpoint(
            job.folder, job.run, job.origin, stepper.model, stepper.optimizer, stepper.policy
        )
        self.metrics.resume(job.folder / SIDECAR, step)
        return step

    def start_clock(self) -> None:
        """From here on time counts."""
        self.now = self.saved = time.monotonic()

    def count_step(self) -> None:
        """A step has been made."""
        now = time.monotonic()
        self.taken, self.now = now - self.now, now
        self.seconds += self.taken

    def should_check(self, step: int) -> bool:
        """Whether to check what is due behind `step`: losses are fetched then."""
        return self.slow or step % FLUSH_EVERY == 0 or self._weights_due(step) or self._checkpoint_due(step)

    def save_due(self, step: int, stop: StopRequest) -> None:
        """Write what is due behind `step`, whose loss is sound.

        Raises:
            Preempted: a process was told to end, or the time is over; the checkpoint of `step` is written.
        """
        main, until = self.job.group.main, self.interval.until
        stopped, over, by_clock, self.slow = self.job.group.any_of(
            stop.signal is not None,
            main and until is not None and self.now + self.taken >= until,
            main and self._due_by_clock(),
            self.taken > SLOW,
        )
        if self._weights_due(step):
            self._keep_weights(step)
        if by_clock or stopped or over or self._checkpoint_due(step):
            begun = time.monotonic()
            self.save(step)
            self.saved = time.monotonic()
            self.writing = self.saved - begun
        if (stopped or over) and step < self.job.steps:
            self._leave(step, stop.signal or "a signal" if stopped else None)

    def preempt(self, step: int, stop: StopRequest) -> NoReturn:
        """Leave with the checkpoint of `step`, the last one that was made whole."""
        self.save(step)
        self._leave(step, stop.signal or "a signal")

    def save(self, step: int) -> None:
        """Metrics first: rows past the checkpoint are cut on resume, missing rows could not be made up."""
        job, stepper = self.job, self.stepper
        if job.group.main:
            self.metrics.write(job.folder / SIDECAR, {"run": job.run.id, "partial": True})
        model, optimizer, policy = stepper.model, stepper.optimizer, stepper.policy
        save_checkpoint(job.folder, job.run, step, self.seconds, job.origin, model, optimizer, policy, job.group)

    def _weights_due(self, step: int) -> bool:
        return self.good.due(step) or any(due == step for due, _ in self.snapshots)

    def _checkpoint_due(self, step: int) -> bool:
        return step == self.job.steps or (self.interval.steps is not None and step % self.interval.steps == 0)

    def _due_by_clock(self) -> bool:
        seconds = max(self.interval.seconds, self.writing / SAVING)
        return self.interval.steps is None and time.monotonic() - self.saved >= seconds

    def _keep_weights(self, step: int) -> None:
        job = self.job
        weights = whole_tensors(self.stepper.model.state_dict(), job.group)
        if not job.group.main:
            return
        for at in [at for due, at in self.snapshots if due == step]:
            save_weights(snapshot_path(job.folder, at), weights, job.run, step, job.origin)
        if self.good.due(step):
            self.good.keep(weights, step)

    def _leave(self, step: int, by: str | None) -> NoReturn:
        """By a signal to this process or another, or the time is over; the checkpoint of `step` is written."""
        job = self.job
        job.group.wait()  # main has written it
        raise Preempted(
            f"{job.run.id}: stopped by {by or 'its time limit'} at step {step} of {job.steps}; its checkpoint is "
            "written, the same command goes on from there",
            together=True,
            code=REQUEUE if by else TIME_OVER,
        )
