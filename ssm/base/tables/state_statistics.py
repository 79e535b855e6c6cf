"""The state against position."""

from __future__ import annotations

from ssm.base.tables.table import F64, I64, Schema

STATE_STATISTICS = Schema(
    "state_statistics",
    "one sequence, one position, one layer (with a state), one head (-1: all heads; layer -1: the whole state)",
    {"sequence": I64, "position": I64, "layer": I64, "head": I64, "norm": F64, "mean": F64, "std": F64},
    keys=("sequence", "position", "layer", "head"),
    sample="sequence",
)
