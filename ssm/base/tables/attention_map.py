"""Attention maps."""

from __future__ import annotations

import polars as pl

from ssm.base.tables.table import F64, I64, Schema

ATTENTION_MAP = Schema(
    "attention_map",
    "one weight of one layer's map on one example: how much a token counts at a later one, or at itself",
    {
        "example": I64,  # 0, 1, ...
        "layer": I64,  # 1, 2, ...
        "query": I64,  # place of the token that reads
        "key": I64,  # place of the token that is read, up to the query's
        # The key's place less that of the token that has to be said behind the query: at 0 a layer looks behind (mi
        # Section 3). Null: behind the query nothing is scored, or the task does not say where its answers stand.
        "offset": I64,
        # Whether what is read there holds that token: at offset 0, and up to K - 1 where the layer has a convolution of
        # K taps, which hands it on, or a token shift (K = 2). Null as the offset.
        "behind": pl.Boolean(),
        "weight": F64,  # of the map, mean over heads; of a recurrence it may be negative
        "share": F64,  # its size among those of the query's row, which sum to 1
    },
    keys=("example", "layer", "query", "key", "offset", "behind"),
    sample="example",
)
