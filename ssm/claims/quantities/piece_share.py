"""The share of given pieces that a sample has."""

from __future__ import annotations

from typing import Annotated, ClassVar, Literal

from pydantic import Field

from ssm.claims.estimate import Estimate
from ssm.claims.panel_tables import PanelTables
from ssm.claims.pieces import Piece, SampleQuantity, find_pieces


class PieceShare(SampleQuantity):
    """The share of given pieces that the figure's sample has, verbatim and in this order."""

    kind: Literal["piece_share"] = "piece_share"
    reads: ClassVar[tuple[str, ...]] = ("sample",)
    definition: ClassVar[bool] = True
    # pieces of text, in order; `{key}` matches a number, the same one wherever the name is the same
    pieces: Annotated[tuple[Piece, ...], Field(strict=False, min_length=1)]

    def estimate(self, panel: PanelTables) -> Estimate:
        found = find_pieces(self.pieces, self.text(panel))
        return self.exact(sum(place is not None for place in found) / len(found), panel)

    def words(self, panel: PanelTables) -> str:
        return f"share of {len(self.pieces)} pieces of text that the sample has, verbatim and in order"
