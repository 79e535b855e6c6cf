"""How much of its answers a model has right."""

from __future__ import annotations

import polars as pl

from ssm.base.tables.table import F64, I64, TEXT, Schema

ACCURACY = Schema(
    "accuracy",
    "one answer of one test example, read behind the right tokens (forced) and written by the model itself (generated)",
    {
        "length": I64,  # of the example, as its task counts it
        "group": TEXT,  # of questions, as its task names it
        "example": I64,  # 0, 1, ...
        "answer": I64,  # 0, 1, ... of those in the example
        "difficulty": F64,  # the depth of a key, the sentences of a story; null: the task has no such number
        "tokens": I64,  # of the answer, those that are scored
        "forced_share": F64,  # of them, those that are the most probable ones after the right ones before
        "forced_all": pl.Boolean(),
        "generated_share": F64,  # of them, those that greedy decoding puts in their places
        "generated_all": pl.Boolean(),
        # Log-likelihood of the answer less that of the likeliest of the wrong ones that the task holds it against, nats
        "margin": F64,
        "preferred": pl.Boolean(),  # it is above zero
    },
    keys=("length", "group", "example", "answer", "difficulty"),
    sample="example",
    optional=frozenset({"margin", "preferred"}),  # of tasks that have such alternatives
)
