"""Repair a model without training: search the numbers of the repair on text that is set aside for this.

Nothing is trained or measured on this text. A trial is the mean loss over all positions of long windows, from the zero
state. So a repair that harms inside the context pays for it. The search starts at the unchanged model and follows the
axes of the repair once (`ssm.specs.repairs.base`). A repair that never helps is therefore not applied.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import polars as pl
import torch

from ssm.base.errors import DataError
from ssm.base.files import write_json
from ssm.base.provenance import provenance
from ssm.base.records import RUN_METRICS, RUN_RECORD, RUN_WEIGHTS
from ssm.base.seeds import derived_seed
from ssm.base.tables import METRICS, write_table
from ssm.data.batches import held_out_windows
from ssm.data.store import TokenStore
from ssm.evaluation.evaluation_context import EvaluationContext
from ssm.evaluation.stream import segments
from ssm.models.device import device_name
from ssm.models.logits import cross_entropy, token_values
from ssm.models.readable import Readable
from ssm.models.repairs import repaired_copy
from ssm.models.weights_file import digests, save_weights
from ssm.specs.foreign import AnyModel
from ssm.specs.repairs import RepairSpec
from ssm.specs.repairs.base import Point
from ssm.specs.training import RunSpec
from ssm.training.lineage import origin_of, require_parent, starting_weights
from ssm.training.run_folder import finished_record, working_in
from ssm.training.run_record import inherited, run_record


@dataclass(frozen=True)
class Trial:
    """Numbers of a repair, and the loss with them."""

    point: Point
    loss: float  # nats per token


def repair_run(
    run: RunSpec, store: TokenStore, folder: Path, device: torch.device, parent: Path | None
) -> dict[str, Any]:
    """Fill the folder of a run that repairs its parent, and return the content of run.json.

    Writes model.safetensors (the weights of the parent, and the numbers to apply when they are loaded), an empty
    metrics.parquet, and at the end run.json with all trials. After a kill, a new call starts again. A finished
    run stays as it is.

    Raises:
        CheckpointError: the parent is missing or is another run; the folder holds another run.
        DataError: the tokens belong to other data, or too few of them are set aside.
        OutputError: `folder` cannot be written.
    """
    repair = run.repair
    assert repair is not None
    store.require(run.data, "the run")
    started = time.monotonic()
    require_parent(run, parent)
    assert parent is not None  # otherwise this is an error of `require_parent`
    with working_in(folder, run):
        origin = origin_of(store, parent)
        if (finished := finished_record(folder, run, origin)) is not None:
            return finished
        model = starting_weights(run, parent).to(device)
        loss = ChoiceLoss(run, store, device)
        trials = search(repair, model.spec, run.training.context, lambda at: loss(repaired_copy(model, repair, at)))
        best = best_trial(trials)
        save_weights(folder / RUN_WEIGHTS, dict(model.state_dict()), run, 0, origin, best.point)
        empty = pl.DataFrame(schema={name: kind for name, kind in METRICS.columns.items() if name != "accuracy"})
        write_table(empty, METRICS, folder / RUN_METRICS, provenance(run=run.content(), seed=run.seed))
        each = len(loss.windows) * loss.length
        record = run_record(
            run,
            origin,
            model.parameters_count,
            f"repaired with {repair.words}",
            device_name(device),
            time.monotonic() - started,
            tokens_read=each * (1 + (len(trials) - 1) * repair.passes),  # the unchanged model takes one pass
        )
        record |= inherited(parent) | {
            "chosen": list(best.point),
            "trials": [{"at": list(trial.point), "loss": _number(trial.loss)} for trial in trials],
            "weights": digests(folder, run),
        }
        write_json(folder / RUN_RECORD, record)
    return record


class ChoiceLoss:
    """The loss of a model on the windows that choose a repair."""

    def __init__(self, run: RunSpec, store: TokenStore, device: torch.device):
        assert run.repair is not None
        self.run, self.store, self.device, self.length = run, store, device, run.repair.length(run.training.context)
        seed = derived_seed(run.repair.seed, "windows", run.seed)
        try:
            self.windows = held_out_windows(store.choice, run.repair.sequences, self.length, seed)
        except DataError as error:
            raise DataError(f"{error}; or set more aside with 'choice'") from None

    def __call__(self, model: Readable) -> float:
        """Mean loss over all tokens of the windows, nats; infinity if it is not finite."""
        ctx = EvaluationContext(model, self.run.seed, self.store, self.device, f"choose {self.run.id}")
        total = torch.zeros((), dtype=torch.float64)
        for segment in segments(ctx, self.windows, self.length):
            total += token_values(model, segment.hidden, segment.targets, cross_entropy).double().sum().cpu()
        loss = float(total) / (len(self.windows) * self.length)
        return loss if math.isfinite(loss) else math.inf


def search(repair: RepairSpec, model: AnyModel, context: int, loss: Callable[[Point], float]) -> list[Trial]:
    """All trials in order: the unchanged model, then axis by axis, each from the best point so far.

    Args:
        context: T.
        loss: the loss of the model that is repaired with a point.
    """
    tried: dict[Point, Trial] = {}

    def tries(point: Point) -> None:
        if point not in tried:
            tried[point] = Trial(point, loss(point))

    tries(repair.start(model))
    for axis in repair.axes(model, context):
        best = best_trial(list(tried.values())).point
        for value in axis.values:
            tries(axis.moved(best, value))
    return list(tried.values())


def best_trial(trials: list[Trial]) -> Trial:
    """The first trial with the lowest loss."""
    return min(trials, key=lambda trial: trial.loss)


def _number(loss: float) -> float | None:
    return loss if math.isfinite(loss) else None
