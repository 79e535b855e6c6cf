"""The table of scan speeds."""

from __future__ import annotations

from ssm.base.schema import Schema

SCAN_SPEED = Schema(
    "scan_speed",
    "one timed call of one implementation of a scan; implementations alternate, and wrong ones are not timed",
    {
        "operation": str,  # a function of ssm_kernels
        "system": str,  # the system with these sizes and decays
        "shape": str,  # B x T x ...
        "dtype": str,
        "state": bool,  # with an initial state and a gradient through the final state
        "direction": str,  # forward, forward+backward
        "contestant": str,  # a backend or a peer
        "repeat": int,  # 1, 2, ...; null: not timed
        "milliseconds": float,
        "error": float,  # the largest relative error of an output or gradient against the oracle in float64
        "reason": str,  # reason for a missing time
        "limit_ms": float,  # smallest time that the machine's measured limits allow
    },
)
