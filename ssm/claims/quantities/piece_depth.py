"""The depth of a piece of text in a sample."""

from __future__ import annotations

from typing import ClassVar, Literal

from ssm.claims.estimate import Estimate, UndecidableError
from ssm.claims.panel_tables import PanelTables
from ssm.claims.pieces import Piece, SampleQuantity, find_pieces


class PieceDepth(SampleQuantity):
    """The depth of a piece of the figure's sample in the text between two other pieces: 0 at its start, 1 at its end.

    It is the number of letters before the piece, divided by the number of all letters without the piece.
    """

    kind: Literal["piece_depth"] = "piece_depth"
    reads: ClassVar[tuple[str, ...]] = ("sample",)
    definition: ClassVar[bool] = True
    piece: Piece  # the piece whose depth is measured; `{key}` in a piece matches a number
    behind: Piece  # the text starts after this piece ...
    before: Piece  # ... and ends before this piece

    def estimate(self, panel: PanelTables) -> Estimate:
        pieces = (self.behind, self.piece, self.before)
        found = find_pieces(pieces, self.text(panel))
        for piece, place in zip(pieces, found, strict=True):
            if place is None:
                raise UndecidableError(f"the sample does not have '{piece}' at the expected place")
        (_, begin), (start, stop), (end, _) = (place for place in found if place is not None)
        letters = end - begin - (stop - start)
        if not letters:
            raise UndecidableError("the sample has no text around the piece")
        return self.exact((start - begin) / letters, panel)

    def words(self, panel: PanelTables) -> str:
        return f"letters before '{self.piece}' / all letters of the text"
