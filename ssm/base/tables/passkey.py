"""Keys hidden in a text."""

from __future__ import annotations

import polars as pl

from ssm.base.tables.table import F64, I64, Schema

PASSKEY = Schema(
    "passkey",
    "one length, one depth, one trial: a key read in a long text and asked for at its end",
    {
        "length": I64,  # tokens of the prompt and the key that is asked for
        "depth": F64,  # of the key in the text: 0 its start, 1 its end
        "trial": I64,  # 0, 1, ...: other digits, and a text that begins elsewhere
        "correct": pl.Boolean(),  # every token of the key is the most probable one after those before it
        "digits_right": I64,  # digits that are spelled before the first token that is not
    },
    keys=("length", "depth", "trial"),
    sample="trial",
)
