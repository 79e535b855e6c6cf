"""How deep in a text a piece of it stands."""

from __future__ import annotations

from ssm.claims.estimate import Estimate, UndecidableError
from ssm.claims.panel import Panel
from ssm.claims.quantities.sample import SampleEstimator, places
from ssm.specs.quantities.piece_depth import PieceDepth


class PieceDepthEstimator(SampleEstimator[PieceDepth]):
    """Exact."""

    def estimate(self, panel: Panel) -> Estimate:
        pieces = (self.spec.behind, self.spec.piece, self.spec.before)
        found = places(pieces, self.text(panel))
        for piece, place in zip(pieces, found, strict=True):
            if place is None:
                raise UndecidableError(f"'{piece}' does not stand in the sample where it should")
        (_, begin), (start, stop), (end, _) = (place for place in found if place is not None)
        letters = end - begin - (stop - start)
        if not letters:
            raise UndecidableError("no text stands around the piece")
        return self.exact((start - begin) / letters, panel)

    def words(self, panel: Panel) -> str:
        return f"letters of the text in front of '{self.spec.piece}' / all of them"
