"""How deep in a text a piece of it stands."""

from __future__ import annotations

from typing import ClassVar, Literal

from ssm.claims.estimate import Estimate, UndecidableError
from ssm.claims.panel_tables import PanelTables
from ssm.claims.pieces import Piece, SampleQuantity, find_pieces


class PieceDepth(SampleQuantity):
    """Where a piece of the figure's sample stands in the text between two others: 0 its start, 1 its end.

    That is the letters of that text in front of the piece / all of its letters, the piece itself not counted.
    """

    kind: Literal["piece_depth"] = "piece_depth"
    reads: ClassVar[tuple[str, ...]] = ("sample",)
    definition: ClassVar[bool] = True
    piece: Piece
    behind: Piece  # what the text begins behind ...
    before: Piece  # ... and what it ends before

    def estimate(self, panel: PanelTables) -> Estimate:
        pieces = (self.behind, self.piece, self.before)
        found = find_pieces(pieces, self.text(panel))
        for piece, place in zip(pieces, found, strict=True):
            if place is None:
                raise UndecidableError(f"'{piece}' does not stand in the sample where it should")
        (_, begin), (start, stop), (end, _) = (place for place in found if place is not None)
        letters = end - begin - (stop - start)
        if not letters:
            raise UndecidableError("no text stands around the piece")
        return self.exact((start - begin) / letters, panel)

    def words(self, panel: PanelTables) -> str:
        return f"letters of the text in front of '{self.piece}' / all of them"
