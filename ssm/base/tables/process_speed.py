"""How fast several processes train."""

from __future__ import annotations

from ssm.base.tables.table import F64, I64, TEXT, Schema

PROCESS_SPEED = Schema(
    "process_speed",
    "one short run of training, by one process or by several; the ways alternate within a repeat",
    {
        "model": TEXT,
        "processes": I64,
        "batch_tokens": I64,  # tokens of a training step
        "way": TEXT,  # one; part: one, a part of the batch; apart: each its part, at once; together: as a team
        "repeat": I64,  # 1, 2, ...
        "milliseconds": F64,  # a step of the slowest process
    },
)
