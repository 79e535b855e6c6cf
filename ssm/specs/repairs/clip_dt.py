"""The spec of clipping dt."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar, Literal

from ssm.specs.base import PositiveFloats
from ssm.specs.repairs.base import OfLayers


class ClipDt(OfLayers):
    """An upper limit for the step sizes dt of Mamba-2: `dt_limit` in mamba_ssm, `time_step_limit` in transformers."""

    needs: ClassVar[str] = "has_dt_limit"
    number: ClassVar[str] = "dt at most"
    unstored: ClassVar[str | None] = "limits dt, and other libraries drop this limit while they generate"
    kind: Literal["clip_dt"] = "clip_dt"
    limits: PositiveFloats = (0.003, 0.01, 0.03, 0.1, 0.3, 1.0)  # upper limits of dt to try

    @property
    def tried(self) -> Sequence[float]:
        return self.limits
