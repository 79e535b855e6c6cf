"""How fast several processes train."""

from __future__ import annotations

from ssm.base.schema import Schema

PROCESS_SPEED = Schema(
    "process_speed",
    "one short run of training, by one process or by several; the ways alternate within a repeat",
    {
        "model": str,
        "processes": int,
        "batch_tokens": int,  # tokens of a training step
        "way": str,  # one; part: one, a part of the batch; apart: each its part, at once; together: as a team
        "repeat": int,  # 1, 2, ...
        "milliseconds": float,  # a step of the slowest process
    },
)
