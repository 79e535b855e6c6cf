"""Measure the original and the trained weights on the windows for the choice."""

from __future__ import annotations

from dataclasses import asdict, replace
from pathlib import Path

import torch

from ssm.base.records import RUN_WEIGHTS
from ssm.data.own_text import disjoint_windows
from ssm.data.store import TokenStore
from ssm.diagnosis.sampling import computing_in
from ssm.diagnosis.session import FixedWindowsContext
from ssm.evaluation.position_loss import position_loss
from ssm.evaluation.restart_loss import restart_loss
from ssm.extension.choice import END, ORIGINAL, Candidate
from ssm.extension.export import as_exported
from ssm.extension.losses import losses_of
from ssm.models.load import LoadedModel
from ssm.models.trainable import TrainableModel
from ssm.models.weights_file import load_model, snapshot_path, snapshot_step
from ssm.specs.diagnosis import LEAST, DiagnosisSpec
from ssm.specs.measurements.position_loss import PositionLoss
from ssm.specs.measurements.restart_loss import RestartLoss
from ssm.specs.training import RunSpec


def weights_of(candidate: Candidate, folder: Path, parent: Path) -> Path:
    """The file of a candidate's weights, in the folder of the extended run or of its parent."""
    if candidate.name == ORIGINAL:
        return parent / RUN_WEIGHTS
    return folder / RUN_WEIGHTS if candidate.snapshot is None else snapshot_path(folder, candidate.snapshot)


def candidates(
    loaded: LoadedModel,
    run: RunSpec,
    folder: Path,
    parent: Path,
    store: TokenStore,
    spec: DiagnosisSpec,
    device: torch.device,
) -> list[Candidate]:
    """The original, the snapshots and the end of a finished run, each measured.

    Args:
        store: its held-out part is the text for the choice.

    Raises:
        CheckpointError: weights are missing or corrupted.
    """
    steps = run.training.budget.steps
    assert steps is not None
    unmeasured = [Candidate(ORIGINAL, 0)]
    unmeasured += [Candidate(f"{at:g}", snapshot_step(at, steps), at) for at in run.training.snapshots]
    unmeasured += [Candidate(END, steps)]
    measured_candidates = []
    for candidate in unmeasured:
        path = weights_of(candidate, folder, parent)
        model = as_exported(loaded, load_model(path)[0], path.parent).to(device)
        what = f"step {candidate.step}" if candidate.step else candidate.name
        measured_candidates.append(measured(candidate, model, store, spec, device, what))
    return measured_candidates


def measured(
    candidate: Candidate,
    model: TrainableModel,
    store: TokenStore,
    spec: DiagnosisSpec,
    device: torch.device,
    what: str,
) -> Candidate:
    """The candidate with the losses of its model on the windows for the choice.

    Args:
        what: words for the candidate in the progress.
    """
    windows = disjoint_windows(store.held_out, spec.length, spec.seed, at_least=LEAST)
    count, title = len(windows.positions), f"choose: {what}"
    ctx = FixedWindowsContext(model.eval(), spec.seed, store, device, title, given=windows)
    restart = RestartLoss(length=spec.length, sequences=count, context=spec.context, everywhere=True)
    with computing_in(spec, device):
        full = position_loss(PositionLoss(length=spec.length, sequences=count), ctx)
        restarted = restart_loss(restart, ctx)
    return replace(candidate, **asdict(losses_of(full, restarted, spec.context)))
