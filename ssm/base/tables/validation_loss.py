"""The loss of held-out text as training reads it."""

from __future__ import annotations

from ssm.base.tables.table import F64, I64, Schema

VALIDATION_LOSS = Schema(
    "validation_loss",
    "one sequence: the mean loss of its tokens, read in blocks of T from the zero state",
    {"sequence": I64, "loss": F64},
    keys=("sequence",),
    sample="sequence",
)
