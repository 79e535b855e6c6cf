"""The share of pieces that stand in a sample."""

from __future__ import annotations

from ssm.claims.estimate import Estimate
from ssm.claims.panel import Panel
from ssm.claims.quantities.sample import SampleEstimator, places
from ssm.specs.quantities.piece_share import PieceShare


class PieceShareEstimator(SampleEstimator[PieceShare]):
    """Exact."""

    def estimate(self, panel: Panel) -> Estimate:
        found = places(self.spec.pieces, self.text(panel))
        return self.exact(sum(place is not None for place in found) / len(found), panel)

    def words(self, panel: Panel) -> str:
        return f"of {len(self.spec.pieces)} pieces of text, the share that stands in the sample, verbatim and in order"
