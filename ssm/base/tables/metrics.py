"""The table that a training run writes."""

from __future__ import annotations

from ssm.base.schema import Schema

CEILING = 2.0  # in units of log V, the loss of a uniform guess; a run that stays above it has diverged

METRICS = Schema(
    "metrics",
    "one optimizer step of a training run",
    {
        "step": int,  # 1, 2, ...
        "tokens": int,  # tokens seen up to and including this step
        "loss": float,  # training loss of this step's batch, nats per token
        "grad_norm": float,  # before clipping
        "lr": float,
        "weight_decay": float,
        "state_norm": float,  # mean norm of the state that the batch started from (0 for the zero state)
        "accuracy": float,  # of a task: share of this batch's answer tokens that are the most probable token
    },
    keys=("step", "tokens"),
    may_be_empty=True,  # empty at a checkpoint inside the first step
    optional=frozenset({"accuracy"}),
)
