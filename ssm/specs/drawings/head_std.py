"""The spec of curves of single heads."""

from __future__ import annotations

from typing import ClassVar, Literal

from pydantic import PositiveInt

from ssm.specs.drawings.base import SeriesDrawing


class HeadStdCurves(SeriesDrawing):
    """Standard deviation of the state of the heads that drift most, against position."""

    kind: Literal["head_std"] = "head_std"
    reads: ClassVar[tuple[str, ...]] = ("state_statistics",)
    heads: PositiveInt = 6
    chosen_by: str  # the arm whose drift chooses the heads
