"""How fast training steps are."""

from __future__ import annotations

import polars as pl

from ssm.base.tables.table import F64, I64, TEXT, Schema

TRAINING_SPEED = Schema(
    "training_speed",
    "one timed training step of one implementation; implementations alternate within a repeat",
    {
        "model": TEXT,
        "implementation": TEXT,  # ssm, or transformers and how it scans
        "flush_denormal": pl.Boolean(),  # whether denormal numbers are flushed to zero
        "repeat": I64,  # 1, 2, ...
        "milliseconds": F64,
        "tokens_per_second": F64,
    },
)
