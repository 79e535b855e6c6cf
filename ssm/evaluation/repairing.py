"""Repairing a model without training: the numbers of a repair are searched on text that is set aside for choices.

Nothing is trained or measured on that text. A trial is the mean loss of long windows from the zero state, all positions
alike: what a repair costs inside the context counts by its share of them. The search begins at the model as it is, so
that a repair that helps nowhere is left out, and goes along the repair's axes once (`ssm.specs.repairs.base`).
"""

from __future__ import annotations

import copy
import math
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import polars as pl
import torch

from ssm.base.errors import CheckpointError, DataError
from ssm.base.files import make_folder, only_one, remove_leftovers, write_json
from ssm.base.provenance import provenance
from ssm.base.seeds import derived_seed
from ssm.base.tables import METRICS, write_table
from ssm.data.batches import held_out_windows
from ssm.data.store import TokenStore
from ssm.evaluation.evaluation_context import EvaluationContext
from ssm.evaluation.stream import cross_entropy, segments, token_values
from ssm.models.checkpoint import RECORD, digests, load_model, save_weights
from ssm.models.device import device_name
from ssm.models.readable import Readable
from ssm.models.repairs import repaired
from ssm.models.trainable import TrainableModel
from ssm.specs.repairs import RepairSpec
from ssm.specs.repairs.base import Point
from ssm.specs.training import RunSpec
from ssm.training.lineage import origin_of, read_record

WEIGHTS = "model.safetensors"


@dataclass(frozen=True)
class Trial:
    """Numbers of a repair, and the loss that they gave."""

    point: Point
    loss: float  # nats per token


def repair_run(run: RunSpec, store: TokenStore, folder: Path, device: torch.device, parent: Path) -> dict[str, Any]:
    """Fill the folder of a run that repairs its parent; returns what run.json says.

    Leaves model.safetensors (the parent's weights, and the numbers that are applied when they are read), an empty
    metrics.parquet and, last of all, run.json with every trial. A call after a kill makes all anew.

    Raises:
        CheckpointError: the parent is missing, or another run's; the folder holds another run.
        DataError: the tokens are not those of the run, or too few of them are set aside.
        OutputError: `folder` cannot be written.
    """
    assert run.repair is not None
    store.insist_on(run.data, "the run")
    started, path = time.monotonic(), parent / WEIGHTS
    model, trained = load_model(path, device)
    if trained != run.parent:
        assert run.parent is not None
        raise CheckpointError(f"{path}: holds the run '{trained.id}', expected '{run.parent.id}'")
    make_folder(folder)
    with only_one(folder):
        if (folder / RECORD).exists() and read_record(folder).get("spec") != run.content():
            raise CheckpointError(f"{folder}: holds another run; give another --out, or delete it")
        remove_leftovers(folder)
        trials = search(run.repair, model.eval(), run.training.context, Trials(run, store, device))
        best, origin = least(trials), origin_of(store, parent)
        save_weights(folder / WEIGHTS, dict(model.state_dict()), run, 0, origin, best.point)
        empty = pl.DataFrame(schema={name: kind for name, kind in METRICS.columns.items() if name != "accuracy"})
        write_table(empty, METRICS, folder / "metrics.parquet", provenance(run=run.content(), seed=run.seed))
        seconds = time.monotonic() - started
        record = _record(run, read_record(parent), trials, best, seconds) | {
            "parameters": model.parameters_count,
            "device": device_name(device),
            "origin": origin,
            "weights": digests(folder, run),
        }
        write_json(folder / RECORD, record)
    return record


class Trials:
    """The loss of a model on the windows that a repair is chosen on."""

    def __init__(self, run: RunSpec, store: TokenStore, device: torch.device):
        assert run.repair is not None
        self.run, self.store, self.device, self.length = run, store, device, run.repair.length(run.training.context)
        seed = derived_seed(run.repair.seed, "windows", run.seed)
        try:
            self.windows = held_out_windows(store.choice, run.repair.sequences, self.length, seed)
        except DataError as error:
            raise DataError(f"{error}; or set more aside with 'choice'") from None

    def __call__(self, model: Readable) -> float:
        """Mean loss of all tokens of the windows, nats; infinite where it is no number."""
        ctx = EvaluationContext(model, self.run.seed, self.store, self.device, f"choose {self.run.id}")
        total = torch.zeros((), dtype=torch.float64)
        for segment in segments(ctx, self.windows, self.length):
            total += token_values(model, segment.hidden, segment.targets, cross_entropy).double().sum().cpu()
        loss = float(total) / (len(self.windows) * self.length)
        return loss if math.isfinite(loss) else math.inf


def search(repair: RepairSpec, model: TrainableModel, context: int, loss: Callable[[Readable], float]) -> list[Trial]:
    """Every trial, in order: the model as it is, then axis by axis, each from the best point so far.

    Args:
        model: in evaluation mode; it is left as it is.
        context: T.
        loss: of a model.
    """
    tried: dict[Point, Trial] = {}

    def tries(point: Point) -> None:
        if point not in tried:
            tried[point] = Trial(point, loss(repaired(copy.deepcopy(model), repair, point)))

    tries(repair.start(model.spec))
    for axis in repair.axes(model.spec, context):
        best = least(list(tried.values())).point
        for value in axis.values:
            tries(axis.moved(best, value))
    return list(tried.values())


def least(trials: list[Trial]) -> Trial:
    """The trial with the least loss, of equals the first."""
    return min(trials, key=lambda trial: trial.loss)


def _record(run: RunSpec, parent: dict[str, Any], trials: list[Trial], best: Trial, seconds: float) -> dict[str, Any]:
    """What run.json says; no token was trained on, `tokens_read` went forward through the model."""
    assert run.repair is not None
    each = run.repair.sequences * run.repair.length(run.training.context)
    read = each * (1 + (len(trials) - 1) * run.repair.passes)  # first the model as it is, which takes one pass
    inherited = parent.get("diverged")
    return {
        "status": "finished",
        "message": f"repaired with {run.repair.words}",
        "diverged": inherited and f"its parent {inherited}",
        "steps": 0,
        "budget_steps": 0,
        "tokens": 0,
        "tokens_read": read,
        "seconds": round(seconds, 3),
        "tokens_per_second": round(read / max(seconds, 1e-9), 1),
        **({"published": parent["published"]} if "published" in parent else {}),
        "chosen": list(best.point),
        "trials": [{"at": list(trial.point), "loss": _number(trial.loss)} for trial in trials],
        "spec": run.content(),
        "provenance": provenance(),
    }


def _number(loss: float) -> float | None:
    return loss if math.isfinite(loss) else None
