"""The spec of curves of the perplexity."""

from __future__ import annotations

from typing import ClassVar, Literal

from ssm.specs.base import Name
from ssm.specs.drawings.base import SeriesDrawing


class PositionCurves(SeriesDrawing):
    """Position-wise perplexity against position, a panel per model; with `ratio`, the paired ratio below it."""

    kind: Literal["position_curves"] = "position_curves"
    reads: ClassVar[tuple[str, ...]] = ("position_loss", "restart_loss")
    ratio: bool = False
    restarted: str | None = None  # the arm that is restarted in the ratio; None: each arm itself
    restart_loss: Name | None = None
