"""The loss by position."""

from __future__ import annotations

from typing import Literal

from pydantic import PositiveInt

from ssm.specs.measurements.base import OfWindows


class PositionLoss(OfWindows):
    """The loss at every position of long held-out windows, from the zero state (lg Def. 3.1), in bins."""

    kind: Literal["position_loss"] = "position_loss"
    sequences: PositiveInt = 64  # as of restart_loss: they are compared window by window
    seed: int = 5
