"""The record of a finished run, run.json: written last in the run's folder."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from ssm.base.errors import CheckpointError
from ssm.base.provenance import provenance
from ssm.base.records import RUN_RECORD, read_run_record
from ssm.models.weights_file import snapshot_step
from ssm.specs.training import RunSpec
from ssm.training.metrics import PATIENCE


def read_record(run: Path) -> dict[str, Any]:
    """The content of a finished run's run.json.

    Raises:
        CheckpointError: the file is missing or damaged.
    """
    path = run / RUN_RECORD
    missing = f"{path}: missing; the run has not finished (see `ssm train`)"
    needed = ("message", "diverged", "steps", "budget_steps", "tokens")
    return read_run_record(path, CheckpointError, missing, needed)


def run_record(
    run: RunSpec,
    origin: str,
    parameters: int,
    message: str,
    device: str = "none",
    seconds: float = 0.0,
    steps: int = 0,
    budget_steps: int = 0,
    tokens: int = 0,
    tokens_read: int | None = None,
) -> dict[str, Any]:
    """The record of a run that did not diverge, without the digests of its weights.

    Args:
        origin: fingerprint of the run's inputs (`ssm.training.lineage`).
        message: how it ended, for its reader.
        device: name of the device that trained it; "none" for imported weights.
        seconds: training time, without that to write checkpoints, or duration of the search of a repair.
        tokens: number of tokens that it was trained on.
        tokens_read: number of tokens in forward passes, for a run that trains on no token but searches a repair.
    """
    worked = tokens if tokens_read is None else tokens_read
    return {
        "status": "finished",
        "message": message,
        "diverged": None,
        "steps": steps,
        "budget_steps": budget_steps,
        "tokens": tokens,
        **({} if tokens_read is None else {"tokens_read": tokens_read}),
        "parameters": parameters,
        "seconds": round(seconds, 3),
        "tokens_per_second": round(worked / max(seconds, 1e-9), 1),
        "device": device,
        "origin": origin,
        "spec": run.content(),
        "provenance": provenance(),
    }


def inherited(parent: Path | None) -> dict[str, Any]:
    """The entries of a run's record that are from its parent: its divergence, and the weights that it descends from.

    Claims use neither a diverged run nor its children.
    """
    record = {} if parent is None else read_record(parent)
    diverged = record.get("diverged")
    return {
        **({"diverged": f"its parent {diverged}"} if diverged else {}),
        **({"published": record["published"]} if "published" in record else {}),
    }


def divergence(record: dict[str, Any], snapshot: float | None) -> str | None:
    """Why weights of a run are affected by a divergence; None if they are not.

    A snapshot from long enough before the divergence of its run is not affected. Descendants of a diverged run are.

    Args:
        snapshot: the fraction of the run's steps; None: its final weights.
    """
    sound_until = record["steps"] - PATIENCE if record["status"] == "diverged" else 0
    if snapshot is not None and snapshot_step(snapshot, record["budget_steps"]) <= sound_until:
        return parents_divergence(record)
    return record["diverged"]


def parents_divergence(record: dict[str, Any]) -> str | None:
    """Why the parent of a run diverged; None if it did not."""
    return record.get("parent_diverged") if record["status"] == "diverged" else record["diverged"]
