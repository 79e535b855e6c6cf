"""How far the decays of a channel range."""

from __future__ import annotations

from ssm.base.tables.table import F64, I64, Schema

DECAY_RANGE = Schema(
    "decay_range",
    "one sequence, one layer (0: all), one threshold: the shares of states and channels with A_max - A_min up to it",
    {
        "sequence": I64,
        "layer": I64,
        "threshold": F64,
        "share": F64,  # of the layer's states, each over the tokens alone
        "channel_share": F64,  # of its channels (or heads), over the tokens and over a channel's states
    },
    keys=("sequence", "layer", "threshold"),
    sample="sequence",
)
