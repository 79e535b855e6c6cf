"""The spec of scaling A."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar, Literal

from ssm.specs.base import PositiveFloats
from ssm.specs.repairs.base import OfLayers


class ScaleA(OfLayers):
    """A factor on A in Mamba-1, Mamba-2, Gated DeltaNet and KDA. Above 1, states decay faster.

    In Mamba, this is "Mamba Modulation" (arXiv 2509.19633).
    """

    needs: ClassVar[str] = "has_a"
    number: ClassVar[str] = "A times"
    kind: Literal["scale_a"] = "scale_a"
    factors: PositiveFloats = (0.5, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0, 128.0)  # factors on A to try

    @property
    def tried(self) -> Sequence[float]:
        return self.factors
