"""The loss of the model that starts anew."""

from __future__ import annotations

from ssm.base.tables.table import binned

RESTART_LOSS = binned(
    "restart_loss",
    "one sequence, one bin: the loss on the SAME targets when the model restarts T/2 to T tokens before each",
    "loss",
)
