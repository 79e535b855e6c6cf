"""The resumable checkpoint of a run: weights, optimizer and initial-state policy in one file.

Data order and noise are functions of (seed, step), so the file does not hold them. After the last step, it holds only
the weights. It stays, because Snakemake deletes the other files of a finished run before it makes them again.
"""

from __future__ import annotations

import sys
from pathlib import Path

from torch import Tensor

from ssm.base.checksum import stored_checksum
from ssm.base.errors import CheckpointError, shown
from ssm.models.weights_file import AGAIN, load_tensors, load_weights, save_tensors
from ssm.training.job import Job
from ssm.training.optimizer import load_optimizer, optimizer_tensors
from ssm.training.parallel import full_tensors, sharded_like
from ssm.training.step import Stepper

FILE = "checkpoint.safetensors"


def save_checkpoint(job: Job, stepper: Stepper, step: int, seconds: float) -> None:
    """Write everything that step `step` + 1 needs.

    All processes must call it; the main process writes. The file does not depend on the number of processes.

    Args:
        seconds: training time of the run so far.
    """
    model = stepper.model
    parts = {"model": model.state_dict()}
    if step < job.steps:
        parts |= {"optimizer": optimizer_tensors(model, stepper.optimizer), "policy": stepper.policy.tensors()}
    named = {f"{part}/{name}": tensor for part, named in parts.items() for name, tensor in named.items()}
    tensors = full_tensors(named, job.group)
    if job.group.main:
        header = {"run": job.run.content(), "step": step, "seconds": seconds, "origin": job.origin}
        save_tensors(job.folder / FILE, tensors, header)


def checkpoint_checksum(folder: Path) -> str | None:
    """The digest that the checkpoint in the folder of a run contains; None if there is none."""
    path = folder / FILE
    return stored_checksum(path) if path.exists() else None


def load_checkpoint(job: Job, stepper: Stepper) -> tuple[int, float]:
    """Restore the checkpoint in the folder of the run.

    A checkpoint with another origin is ignored: the text or the parent run has changed under the same spec.

    Returns:
        The checkpoint's step and training time in seconds; zeros if there is no usable checkpoint.

    Raises:
        CheckpointError: the file is corrupted, belongs to another run, or has a step beyond the run's last one.
    """
    path = job.folder / FILE
    if not path.exists():
        return 0, 0.0
    tensors, header = load_tensors(path)
    if header.get("run") != job.run.content():
        raise CheckpointError(f"{path}: belongs to another run; give another --out, or delete this file")
    if header.get("origin") != job.origin:
        print(f"{path}: its text or its parent run has changed; training starts again from step 1", file=sys.stderr)
        return 0, 0.0
    step, seconds = header.get("step"), header.get("seconds")
    if type(step) is not int or not 0 <= step <= job.steps or not isinstance(seconds, int | float) or seconds < 0:
        raise CheckpointError(f"{path}: its step is {shown(step)}, but the run has {job.steps} steps; {AGAIN}")
    model = stepper.model
    load_weights(model, sharded_like(_part(tensors, "model/"), model.state_dict()), str(path))
    if step < job.steps:
        load_optimizer(model, stepper.optimizer, _part(tensors, "optimizer/"))
        stepper.policy.load(_part(tensors, "policy/"))
    return step, float(seconds)


def _part(tensors: dict[str, Tensor], prefix: str) -> dict[str, Tensor]:
    return {name.removeprefix(prefix): tensor for name, tensor in tensors.items() if name.startswith(prefix)}
