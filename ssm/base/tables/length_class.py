"""Classes of length extension."""

from __future__ import annotations

import polars as pl

from ssm.base.tables.table import F64, I64, TEXT, Schema

LENGTH_CLASS = Schema(
    "length_class",
    "one run read so far: its class of length extension (ls Def. 2.1) and whether it length-generalizes (lg Def. 3.2)",
    {
        "class": TEXT,  # strong, weak, none or not decided (ls Def. 2.1); null, as all that follows: not read past T
        "extends_from": I64,  # T_0 of ls Def. 2.1; null for none and where it is not decided
        "largest_rise": F64,  # largest increase of the loss from one length to the next, nats
        "largest_rise_error": F64,  # its standard error over sequences
        "generalizes": pl.Boolean(),  # lg Def. 3.2
        "best_position": I64,  # t* of lg Def. 3.2, middle of its bin
        "excess": F64,  # largest loss past t* minus the loss at t*, nats
        "excess_error": F64,
        "excess_sequences": I64,  # that the excess was tested on: half of all, the other half chose t*
        "context": I64,
        "length": I64,
        "sequences": I64,
        "loss": F64,  # mean over the first `length` tokens, nats; of a table of several lengths
    },
    keys=("context", "length", "sequences"),
    optional=frozenset({"loss"}),
)
