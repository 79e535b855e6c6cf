"""The spec of curves of the state's norm."""

from __future__ import annotations

from typing import ClassVar, Literal

from ssm.specs.drawings.base import SeriesDrawing


class StateNormCurves(SeriesDrawing):
    """Norm of the whole state against position."""

    kind: Literal["state_norm"] = "state_norm"
    reads: ClassVar[tuple[str, ...]] = ("state_statistics",)
