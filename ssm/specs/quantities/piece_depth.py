"""The spec of how deep in a text a piece of it stands."""

from __future__ import annotations

from typing import ClassVar, Literal

from ssm.specs.quantities.base import TaskQuantity
from ssm.specs.quantities.piece_share import Piece


class PieceDepth(TaskQuantity):
    """Where a piece of the figure's sample stands in the text between two others: 0 its start, 1 its end.

    That is the letters of that text in front of the piece / all of its letters, the piece itself not counted.
    """

    kind: Literal["piece_depth"] = "piece_depth"
    reads: ClassVar[tuple[str, ...]] = ("sample",)
    definition: ClassVar[bool] = True
    piece: Piece
    behind: Piece  # what the text begins behind ...
    before: Piece  # ... and what it ends before
