"""The loss by position."""

from __future__ import annotations

from ssm.base.tables.table import BINS, F64, Schema

POSITION_LOSS = Schema(
    "position_loss",
    "one sequence, one bin of positions: the loss with the full history since the start of the sequence",
    BINS | {"loss": F64},
)
