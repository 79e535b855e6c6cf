"""The caps of a rehearsal: every job of a plan stays real, and takes seconds."""

from __future__ import annotations

from ssm.specs.checkpoint import CheckpointSpec
from ssm.specs.config import Rehearsal
from ssm.specs.data import DataSpec
from ssm.specs.diagnosis import LEAST
from ssm.specs.figure import FigureSpec
from ssm.specs.training import Budget, TrainingSpec


def capped_training(training: TrainingSpec, caps: Rehearsal | None) -> TrainingSpec:
    """At most `max_steps` steps; a warm-up given in steps takes at most half of them."""
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


def capped_data(data: DataSpec, caps: Rehearsal | None) -> DataSpec:
    """At most `max_documents` documents."""
    if caps is None:
        return data
    return data.model_copy(update={"max_documents": min(data.max_documents or caps.max_documents, caps.max_documents)})


def capped_seeds(figure: FigureSpec, caps: Rehearsal | None) -> FigureSpec:
    """At most `max_seeds` seeds. Measurements are capped by themselves (ssm/specs/measurements)."""
    if caps is None:
        return figure
    return figure.model_copy(update={"seeds": figure.seeds[: caps.max_seeds]})


def capped_checkpoint(checkpoint: CheckpointSpec, caps: Rehearsal | None) -> CheckpointSpec:
    """At most `max_steps` steps, and `max_sequences` windows but never fewer than a diagnosis needs."""
    if caps is None:
        return checkpoint
    most = max(LEAST, caps.max_sequences)
    fewer = {"steps": min(checkpoint.steps, caps.max_steps), "sequences": min(checkpoint.sequences or most, most)}
    return checkpoint.model_copy(update=fewer)
