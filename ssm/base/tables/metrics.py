"""What a training run logs."""

from __future__ import annotations

from ssm.base.tables.table import F64, I64, Schema

CEILING = 2.0  # in units of log V, the loss of a uniform guess: a run whose loss stays above has diverged

METRICS = Schema(
    "metrics",
    "one optimizer step of a training run",
    {
        "step": I64,  # 1, 2, ...
        "tokens": I64,  # tokens seen up to and including this step
        "loss": F64,  # training loss of this step's batch, nats per token
        "grad_norm": F64,  # before clipping
        "lr": F64,
        "weight_decay": F64,
        "state_norm": F64,  # mean norm of the state that the batch started from (0 for the zero state)
        "accuracy": F64,  # of a task: share of the answers' tokens in this batch that are the most probable ones
    },
    keys=("step", "tokens"),
    may_be_empty=True,  # so it is at a checkpoint inside the first step
    optional=frozenset({"accuracy"}),
)
