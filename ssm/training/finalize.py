"""The end of a run: weights, metrics and, last of all, the record. A diverged run ends in the same way."""

from __future__ import annotations

from typing import Any

from torch import Tensor

from ssm.base.files import write_json
from ssm.base.provenance import provenance
from ssm.base.records import RUN_METRICS, RUN_RECORD, RUN_WEIGHTS
from ssm.models.device import device_name
from ssm.models.trainable import TrainableModel
from ssm.models.weights_file import digests, save_weights, snapshot_path
from ssm.training.checkpoint_schedule import Checkpointer
from ssm.training.job import Job
from ssm.training.lineage import starting_weights
from ssm.training.metrics import Metrics
from ssm.training.parallel import full_tensors
from ssm.training.run_record import inherited, run_record


def finalize(
    job: Job, model: TrainableModel, metrics: Metrics, checkpointer: Checkpointer, diverged: str | None
) -> dict[str, Any]:
    """Write the run's final files and return the content of run.json.

    Args:
        diverged: how the run diverged, or None.
    """
    done, step = len(metrics.rows), job.steps
    if diverged is None:
        weights = full_tensors(model.state_dict(), job.group)
    else:
        step, weights = _last_good(job, checkpointer, done)
    record = run_record(
        job.run,
        job.origin,
        job.parameters,
        "finished",
        device_name(job.device),
        checkpointer.seconds,
        steps=done,
        budget_steps=job.steps,
        tokens=done * job.training.batch_tokens,
    )
    record |= inherited(job.parent)
    if diverged is not None:
        message = f"diverged: {diverged}; the weights are those of step {step}"
        record |= {"parent_diverged": record["diverged"], "status": "diverged", "message": message, "diverged": message}
    if job.group.main:
        # Snapshots that a diverged run never reached: they get its last good weights.
        missing = [snapshot_path(job.folder, at) for due, at in checkpointer.snapshots if diverged and due >= done]
        for path in (*missing, job.folder / RUN_WEIGHTS):
            save_weights(path, weights, job.run, step, job.origin)
        metrics.write(job.folder / RUN_METRICS, provenance(run=job.run.content(), seed=job.run.seed))
        record["weights"] = digests(job.folder, job.run)
        if diverged is None:
            checkpointer.good.forget()
        write_json(job.folder / RUN_RECORD, record)
    return record


def _last_good(job: Job, checkpointer: Checkpointer, diverged_at: int) -> tuple[int, dict[str, Tensor]]:
    """The last good weights and their step; the starting weights and 0 if there are none."""
    model = starting_weights(job.run, job.parent)
    step = checkpointer.good.restore(model, diverged_at)
    return step, dict(model.state_dict())
