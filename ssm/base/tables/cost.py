"""Time and memory of a step."""

from __future__ import annotations

from ssm.base.tables.table import F64, I64, TEXT, Schema

COST = Schema(
    "cost",
    "what one step of a model costs at one length",
    {
        "model": TEXT,
        "mixer": TEXT,
        "length": I64,  # T
        "cost": TEXT,  # training_step, decoding_step: seconds; training_memory, state: bytes
        "repeat": I64,  # 1, 2, ...; bytes are counted once
        "value": F64,
    },
    keys=("model", "mixer", "length", "cost", "repeat"),
    sample="repeat",
)
