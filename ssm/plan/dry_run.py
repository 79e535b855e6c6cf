"""The limits of a dry run: every job of a plan runs, and takes only seconds. Without `caps`, nothing changes."""

from __future__ import annotations

from ssm.claims.families import axis_values
from ssm.figures.figure import FigureSpec
from ssm.specs.checkpoint import CheckpointSpec
from ssm.specs.config import DryRun
from ssm.specs.data import Data
from ssm.specs.diagnosis import LEAST
from ssm.specs.repairs import RepairSpec
from ssm.specs.training import Budget, TrainingSpec


def capped_training(training: TrainingSpec, caps: DryRun | None) -> TrainingSpec:
    """At most `max_steps` steps. A warm-up in steps takes at most half of them."""
    if caps is None:
        return training
    budget = training.budget
    steps = caps.max_steps
    if budget.steps is not None:
        steps = min(steps, budget.steps)
    elif budget.tokens is not None:
        steps = min(steps, max(1, round(budget.tokens / training.batch_tokens)))
    warmup = training.warmup if training.warmup < 1 else min(training.warmup, max(1, steps // 2))
    return training.model_copy(update={"budget": Budget(steps=steps), "warmup": warmup})


def capped_repair(repair: RepairSpec, caps: DryRun | None) -> RepairSpec:
    """Trials read at most `max_sequences` windows of `max_contexts` training contexts."""
    if caps is None:
        return repair
    fewer = {"sequences": min(repair.sequences, caps.max_sequences)}
    return repair.model_copy(update=fewer | {"times_context": min(repair.times_context, caps.max_contexts)})


def capped_data(data: Data, caps: DryRun | None) -> Data:
    """At most `max_documents` documents."""
    return data if caps is None else data.capped(caps.max_documents)


def capped_figure(figure: FigureSpec, caps: DryRun | None) -> FigureSpec:
    """At most `max_seeds` seeds, and only the first and the last value of each axis of a grid.

    Measurements have their own limits (ssm/specs/measurements).
    """
    if caps is None:
        return figure
    kept = _at_corners(figure)
    arms = {
        name: arm if arm is None or arm.member is None or name in kept else None for name, arm in figure.arms.items()
    }
    return figure.model_copy(update={"seeds": figure.seeds[: caps.max_seeds], "arms": arms})


def _at_corners(figure: FigureSpec) -> set[str]:
    """The members at the first or last value of every axis, and all arms that they take weights from."""
    kept = set()
    for members in figure.families.values():
        values = axis_values([members])
        for name, member in members.items():
            arm: str | None = name
            if all(value in (values[axis][0], values[axis][-1]) for axis, value in member.axes.items()):
                while arm is not None and arm not in kept:
                    kept.add(arm)
                    entry = figure.arms[arm]
                    arm = (entry.parent or entry.snapshot_of) if entry else None
    return kept


def capped_checkpoint(checkpoint: CheckpointSpec, caps: DryRun | None) -> CheckpointSpec:
    """At most `max_steps` steps and `max_sequences` windows, but as many windows as a diagnosis needs."""
    if caps is None:
        return checkpoint
    most = max(LEAST, caps.max_sequences)
    fewer = {"sequences": min(checkpoint.sequences or most, most)}
    if not checkpoint.trains_nothing:
        fewer["steps"] = min(checkpoint.training_steps, caps.max_steps)
    return checkpoint.model_copy(update=fewer)
