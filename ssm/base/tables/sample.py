"""An example of a task as text."""

from __future__ import annotations

from ssm.base.tables.table import I64, TEXT, Schema

SAMPLE = Schema(
    "sample",
    "one piece of one example; the texts of all of them, one behind the other, are the example",
    {
        "place": I64,  # 0, 1, ...
        "piece": TEXT,  # what its task calls it, such as needle
        "tokens": I64,  # in it
        "text": TEXT,  # spaces in front of it and all
    },
    keys=("place", "piece"),
)
