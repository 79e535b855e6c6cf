"""Verdicts on claims."""

from __future__ import annotations

import polars as pl

from ssm.base.tables.table import F64, TEXT, Schema

VERDICTS = Schema(
    "verdicts",
    "one claim of one figure, judged",
    {
        "target": TEXT,
        "claim": TEXT,
        "says": TEXT,
        "paper": TEXT,  # what the paper reports
        "quantity": TEXT,  # what is computed here, in words
        "estimate": F64,
        "low": F64,
        "high": F64,
        "interval": TEXT,  # how the interval was made
        "expected": TEXT,  # the region that confirms
        "verdict": TEXT,  # confirmed, refuted, not decided
        "reason": TEXT,
        "sort": TEXT,  # whose statement: paper, definition (a property of what was built), ours; elsewhere
        "number": TEXT,  # the same for verdicts, of whichever figures, that judge the very same number
        "registered": pl.Boolean(),  # before its seeds were read; null: a rehearsal
        "registration": TEXT,  # that in words
    },
    may_be_empty=True,  # a figure need not claim anything
)
