"""The share of pieces that stand in a sample."""

from __future__ import annotations

from typing import Annotated, ClassVar, Literal

from pydantic import Field

from ssm.claims.estimate import Estimate
from ssm.claims.panel_tables import PanelTables
from ssm.claims.pieces import Piece, SampleQuantity, find_pieces


class PieceShare(SampleQuantity):
    """Of some pieces of text, the share that stands in the figure's sample: verbatim, each behind those before it."""

    kind: Literal["piece_share"] = "piece_share"
    reads: ClassVar[tuple[str, ...]] = ("sample",)
    definition: ClassVar[bool] = True
    pieces: Annotated[tuple[Piece, ...], Field(strict=False, min_length=1)]

    def estimate(self, panel: PanelTables) -> Estimate:
        found = find_pieces(self.pieces, self.text(panel))
        return self.exact(sum(place is not None for place in found) / len(found), panel)

    def words(self, panel: PanelTables) -> str:
        return f"of {len(self.pieces)} pieces of text, the share that stands in the sample, verbatim and in order"
