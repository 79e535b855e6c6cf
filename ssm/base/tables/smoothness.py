"""The smoothness of signals inside the layers."""

from __future__ import annotations

from ssm.base.tables.table import F64, I64, TEXT, Schema

SMOOTHNESS = Schema(
    "smoothness",
    "one sequence, one layer, one of its signals: how different its tokens are (bn Section 4.2)",
    {
        "sequence": I64,
        "layer": I64,  # 1, 2, ...
        "depth": F64,  # layer / layers of the model
        "signal": TEXT,  # b: b_t; input: Delta_t b_t; h: the state h_t; mixer, block: their outputs
        "pairwise_distance": F64,  # E(x): 1 where tokens are uncorrelated, 0 where they are all the same
        "relative_to_b": F64,  # over that of b in this layer; null where the layer is no linear recurrence
    },
    keys=("sequence", "layer", "depth", "signal"),
    sample="sequence",
)
