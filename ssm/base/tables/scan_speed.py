"""How fast scans are."""

from __future__ import annotations

import polars as pl

from ssm.base.tables.table import F64, I64, TEXT, Schema

SCAN_SPEED = Schema(
    "scan_speed",
    "one timed call of one implementation of a scan; implementations alternate, and who is wrong is not timed",
    {
        "operation": TEXT,  # a function of ssm_kernels
        "system": TEXT,  # whose sizes and decays
        "shape": TEXT,  # B x T x ...
        "dtype": TEXT,
        "state": pl.Boolean(),  # with an initial state, and with a gradient through the final one
        "direction": TEXT,  # forward, forward+backward
        "contestant": TEXT,  # a backend of ours, or a peer
        "repeat": I64,  # 1, 2, ...; null: not timed
        "milliseconds": F64,
        "error": F64,  # the largest relative error of an output or gradient against the oracle in float64
        "reason": TEXT,  # why it was not timed
        "limit_ms": F64,  # what the machine's measured limits allow
    },
)
