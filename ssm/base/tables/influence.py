"""The influence of every token on the last output."""

from __future__ import annotations

from ssm.base.tables.table import F64, I64, Schema

INFLUENCE = Schema(
    "influence",
    "one sequence, one token: how much the output at the last token depends on it (bn Section 3.1)",
    {
        "sequence": I64,
        "distance": I64,  # t - s, of the token from the last one
        "log_influence": F64,  # natural logarithm of the Frobenius norm of dy_t/dx_s; -inf where it is 0
    },
    keys=("sequence", "distance"),
    sample="sequence",
)
