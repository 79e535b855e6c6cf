"""The table of speeds of training steps."""

from __future__ import annotations

from ssm.base.schema import Schema

TRAINING_SPEED = Schema(
    "training_speed",
    "one timed training step of one implementation; implementations alternate within a repeat",
    {
        "model": str,
        "implementation": str,  # ssm, or transformers with its scan
        "flush_denormal": bool,  # whether denormal numbers are flushed to zero
        "repeat": int,  # 1, 2, ...
        "milliseconds": float,
        "tokens_per_second": float,
    },
)
