"""How far the decays of a channel range."""

from __future__ import annotations

from ssm.base.tables.table import F64, I64, Schema

DECAY_RANGE = Schema(
    "decay_range",
    "one sequence, one layer (0: all), one threshold: the share of the layer's states with A_max - A_min up to it",
    {"sequence": I64, "layer": I64, "threshold": F64, "share": F64},
    keys=("sequence", "layer", "threshold"),
    sample="sequence",
)
