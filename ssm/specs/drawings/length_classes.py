"""The spec of the chart of classes."""

from __future__ import annotations

from typing import ClassVar, Literal

from ssm.specs.base import Name
from ssm.specs.drawings.base import SeriesDrawing


class ClassChart(SeriesDrawing):
    """Loss against length of every curve, with its class (ls Def. 2.1)."""

    kind: Literal["length_classes"] = "length_classes"
    reads: ClassVar[tuple[str, ...]] = ("length_class", "position_loss")
    position_loss: Name | None = None
