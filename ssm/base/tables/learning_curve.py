"""Learning curves."""

from __future__ import annotations

from ssm.base.tables.table import F64, I64, Schema

LEARNING_CURVE = Schema(
    "learning_curve",
    "some steps of training that follow each other: means over their batches, each seen before it is learned from",
    {
        "step": I64,  # the last of them; 1 is the first of the run
        "tokens": I64,  # seen in this run up to and including that step
        "loss": F64,  # nats per token; NaN: the run has diverged here, and there is no row behind this one
        "accuracy": F64,  # of a task: share of the answers' tokens that are the most probable ones; null: of text
    },
    keys=("step", "tokens"),
)
