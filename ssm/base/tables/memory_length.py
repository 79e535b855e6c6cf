"""How long states remember."""

from __future__ import annotations

from ssm.base.tables.table import F64, I64, Schema

MEMORY_LENGTH = Schema(
    "memory_length",
    "one sequence, one layer (0: all), so many tokens: the share of its states that have 1/e or less left after these",
    {"sequence": I64, "layer": I64, "tokens": I64, "share": F64},
    keys=("sequence", "layer", "tokens"),
    sample="sequence",
)
