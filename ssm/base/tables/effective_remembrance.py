"""Effective Remembrance."""

from __future__ import annotations

from ssm.base.tables.table import F64, I64, TEXT, Schema

EFFECTIVE_REMEMBRANCE = Schema(
    "effective_remembrance",
    "one sequence, one t, one distance: d(q(.|x_0:T), q(.|x_t:T)) (lg Def. 3.3)",
    {"sequence": I64, "t": I64, "length": I64, "distance": TEXT, "value": F64},
    keys=("sequence", "t", "length", "distance"),
    sample="sequence",
)
