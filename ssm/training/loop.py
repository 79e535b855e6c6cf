"""The training loop of pre-training and post-training. Interventions differ only by their initial-state policy.

`ssm.training.step` defines one training step. `ssm.training.checkpoint_schedule` decides when a run is saved or stops
early. `ssm.training.finalize` writes its final files.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch

from ssm.base.checksum import stored_checksum
from ssm.base.progress import HEARTBEATS, Progress
from ssm.base.records import RUN_WEIGHTS
from ssm.base.stopping import stop_requests
from ssm.data.store import TokenStore
from ssm.models.backbone import LanguageModel
from ssm.models.check_layers import check_layers
from ssm.specs.training import RunSpec
from ssm.training.checkpoint_file import checkpoint_checksum
from ssm.training.checkpoint_schedule import Checkpointer, CheckpointSchedule
from ssm.training.finalize import finalize
from ssm.training.job import Job, Machine
from ssm.training.lineage import origin_of, require_parent, starting_weights
from ssm.training.metrics import Metrics
from ssm.training.run_folder import finished_record, working_in
from ssm.training.step import Stepper


def train(
    run: RunSpec,
    store: TokenStore,
    folder: Path,
    device: torch.device,
    parent: Path | None = None,
    checkpoints: CheckpointSchedule | None = None,
    machine: Machine | None = None,
) -> dict[str, Any]:
    """Train `run` in `folder`, or resume it there; returns the content of run.json. A finished run stays as it is.

    Writes model.safetensors (the last good weights), metrics.parquet, snapshots/, checkpoint.safetensors and, last of
    all, run.json. Its status is "finished" or "diverged": divergence is a result, not a crash.

    Raises:
        CheckpointError: the parent is missing or is another run; the folder holds another run, or another model.
        ConfigError: the batch cannot be split over the processes.
        DataError: the tokens are not from the run's data set.
        Preempted: SIGTERM or SIGUSR1 arrived, or the time is over. A checkpoint of the last step is written.
        RegistryError: a mixer or an ffn differs from its spec.
    """
    store.require(run.data, "the run")
    folder, machine = Path(folder), machine or Machine()
    require_parent(run, parent)
    with working_in(folder, run, machine.group):
        origin = origin_of(store, parent)
        started = None if parent is None else stored_checksum(parent / RUN_WEIGHTS)
        machine.group.require_same(
            "SPEC.json, --out, --tokens and --parent",
            run=run.id,
            text=origin,
            parent=started,
            checkpoint=checkpoint_checksum(folder),
        )
        record = finished_record(folder, run, origin)
        (to_make,) = machine.group.any_of(record is None)
        if record is not None and not to_make:
            return record
        model = starting_weights(run, parent).to(device)
        if isinstance(model, LanguageModel):
            check_layers(model)
        job = Job(run, folder, parent, device, machine, origin, model.parameters_count)
        metrics = Metrics(model.vocab_size, machine.group, run.data.answers)
        stepper = Stepper(job, store, model)
        try:
            checkpointer = Checkpointer(job, stepper, metrics, checkpoints or CheckpointSchedule())
            model.train()
            diverged = _loop(job, stepper, metrics, checkpointer)
            return finalize(job, model, metrics, checkpointer, diverged)
        finally:
            stepper.close()


def _loop(job: Job, stepper: Stepper, metrics: Metrics, checkpointer: Checkpointer) -> str | None:
    """Make all remaining steps; returns how the run diverged, or None."""
    first = checkpointer.resume()
    stepper.warm_up()
    title, heartbeats = f"train {job.run.id}", job.folder / HEARTBEATS
    with (
        stop_requests() as stop,
        Progress(title, job.steps, "steps", "tokens", shown=job.group.main, file=heartbeats) as progress,
    ):
        progress.resume_at(first)
        checkpointer.start_clock()
        for step in range(first + 1, job.steps + 1):
            row = stepper.train_step(step, stop if checkpointer.slow else None)
            if row is not None:
                metrics.add(**row)
                checkpointer.count_step()
                progress.advance(1, job.training.batch_tokens, metrics.note)
                if not checkpointer.should_check(step):
                    continue
            diverged = metrics.flush()
            if diverged:
                return diverged
            if row is None:  # stopped between two micro-batches
                checkpointer.preempt(step - 1, stop)
            checkpointer.save_due(step, stop)
    return None
