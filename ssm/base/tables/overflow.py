"""When the state of a linear recurrence leaves the range of its number format."""

from __future__ import annotations

import polars as pl

from ssm.base.tables.table import F64, I64, TEXT, Schema

OVERFLOW = Schema(
    "overflow",
    "one channel h_t = a h_{t-1} + b_t with |b_t| = g M, M the largest number of a format, in one arithmetic",
    {
        "format": TEXT,
        # A backend of diagonal_scan; loop: every step rounded to the format; bound: ls eq. 39 in place of a state
        "arithmetic": TEXT,
        "state": TEXT,  # carried: as the arithmetic carries it; stored: rounded to the format
        "inputs": TEXT,  # constant: all of one sign; random: signs drawn anew at every step
        "halvings": I64,  # g = 2^-halvings
        "share": F64,  # (1 - a) / g that was asked for; above 1 ls eq. 40 holds
        "draw": I64,  # of the signs; of constant inputs 1
        "weight": F64,  # a, as the format holds it
        "above": pl.Boolean(),  # whether a > 1 - g, so that ls eq. 40 promises nothing
        "predicted": I64,  # the first t at which the bound on |h_t| (ls eq. 39) is above M; null: never
        "steps": I64,  # that were read
        "position": I64,  # the first t at which the state is no finite number; null: at none
        "overflows": pl.Boolean(),
        "scaled": F64,  # position times g
        "within": pl.Boolean(),  # whether it overflows between half and twice the predicted step; null: none is
    },
    keys=("format", "arithmetic", "state", "inputs", "halvings", "share", "draw"),
    sample="draw",
)
