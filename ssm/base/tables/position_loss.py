"""The loss by position."""

from __future__ import annotations

from ssm.base.tables.table import binned

POSITION_LOSS = binned(
    "position_loss",
    "one sequence, one bin of positions: the loss with the full history since the start of the sequence",
    "loss",
)
