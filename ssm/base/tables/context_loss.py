"""The loss by how much was read before."""

from __future__ import annotations

from ssm.base.tables.table import F64, I64, Schema

CONTEXT_LOSS = Schema(
    "context_loss",
    "one sequence, one context: the mean loss on the SAME targets when the model starts anew so far before each",
    {
        "sequence": I64,
        "context": I64,  # n: more than n tokens, and 2n at most, have been read where a target is predicted
        "loss": F64,
    },
    keys=("sequence", "context"),
    sample="sequence",
)
