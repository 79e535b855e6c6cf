"""What kind of recurrence a model is."""

from __future__ import annotations

import polars as pl

from ssm.base.tables.table import I64, TEXT, Schema

TAXONOMY = Schema(
    "taxonomy",
    "one named model's recurrence: what its spec declares, and what was measured on the mixer of most of its layers",
    {
        "model": TEXT,
        "mixer": TEXT,
        "system": TEXT,  # its published name
        "paper": TEXT,
        "scan": TEXT,  # the operation that carries it
        "decay": TEXT,  # what one decay is shared by
        "complex": pl.Boolean(),
        "recurrence": TEXT,  # lines of LaTeX
        "state_shape": TEXT,  # of one sequence in one layer
        "state_numbers": I64,  # in the state of one sequence and layer after one token
        "state_numbers_late": I64,  # after `length` tokens
        "length": I64,
        "selective": pl.Boolean(),  # measured: what remains of an initial state depends on the input; null: it grows
        "linear": pl.Boolean(),  # measured: what remains is proportional to the initial state; null: it grows
        "identity": pl.Boolean(),  # measured: what remains is the initial state, whole (A_t = I); null: it grows
    },
    keys=("model",),
)
