"""The training loop, for pre-training and post-training alike. Interventions differ by their policy alone.

What a step is stands in `ssm.training.step`; what is kept of a run, when, and when it leaves in `ssm.training.keeping`;
its end and its record in `ssm.training.ending`.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import Any

import torch

from ssm.base import progress as progress_file
from ssm.base.files import make_folder, only_one, remove_leftovers
from ssm.base.progress import Progress
from ssm.base.stopping import stop_requests
from ssm.data.store import TokenStore
from ssm.specs.training import RunSpec
from ssm.training.distributed import Team
from ssm.training.ending import finish
from ssm.training.job import Job
from ssm.training.keeping import Interval, Keeper
from ssm.training.machine import Machine
from ssm.training.metrics import Metrics
from ssm.training.origin import origin_of, starting_weights
from ssm.training.step import Stepper

__all__ = ["Interval", "train"]


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
    with _working_in(folder, machine.team):
        origin = origin_of(store, parent)
        job = Job(run, folder, parent, device, machine.team, origin, model.parameters_count)
        metrics = Metrics(model.vocab_size, machine.team, run.data.answers)
        stepper = Stepper(job, store, model, machine)
        try:
            keeper = Keeper(job, stepper, metrics, interval or Interval())
            model.train()
            diverged = _loop(job, stepper, metrics, keeper)
            return finish(job, model, metrics, keeper, diverged)
        finally:
            stepper.let_go()


def _loop(job: Job, stepper: Stepper, metrics: Metrics, keeper: Keeper) -> str | None:
    """All steps that are not yet done; returns how the run has diverged, if it has."""
    first = keeper.resume()
    stepper.settle()
    title, beats = f"train {job.run.id}", job.folder / progress_file.FILE
    with (
        stop_requests() as stop,
        Progress(title, job.steps, "steps", "tokens", shown=job.team.main, file=beats) as progress,
    ):
        progress.resume_at(first)
        keeper.begin()
        for step in range(first + 1, job.steps + 1):
            row = stepper.make(step, stop if keeper.slow else None)
            if row is not None:
                metrics.add(**row)
                keeper.count()
                progress.advance(1, job.training.batch_tokens, metrics.note)
                if not keeper.looks(step):
                    continue
            diverged = metrics.flush()
            if diverged:
                return diverged
            if row is None:  # it was left between two micro-batches
                keeper.give_up(step - 1, stop)
            keeper.keep(step, stop)
    return None


@contextmanager
def _working_in(folder: Path, team: Team) -> Iterator[None]:
    """Within the block no other job works in `folder`."""
    if team.main:
        make_folder(folder / "snapshots")
    with only_one(folder) if team.main else nullcontext():
        if team.main:
            remove_leftovers(folder)
        team.wait()  # until main is here
        yield
