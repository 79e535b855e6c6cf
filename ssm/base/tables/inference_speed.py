"""The table of speeds of inference."""

from __future__ import annotations

from ssm.base.schema import Schema

INFERENCE_SPEED = Schema(
    "inference_speed",
    "one timed call of one implementation, without gradients; implementations alternate within a repeat",
    {
        "model": str,
        "implementation": str,  # ssm, or transformers
        "task": str,  # reads a sequence, or generates tokens
        "repeat": int,  # 1, 2, ...
        "milliseconds": float,
        "peak_mib": float,  # the most memory that a call adds to the process, MiB; null where it cannot be measured
    },
)
