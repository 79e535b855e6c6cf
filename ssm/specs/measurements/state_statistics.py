"""The state against position."""

from __future__ import annotations

from math import ceil, log2
from typing import Literal

from pydantic import PositiveInt

from ssm.specs.measurements.base import OfWindows
from ssm.specs.model import ModelSpec


class StateStatistics(OfWindows):
    """Norm, mean and standard deviation of the state by layer and head, against position (lg figures 4 and 9)."""

    kind: Literal["state_statistics"] = "state_statistics"
    sequences: PositiveInt = 16
    seed: int = 7

    def rows(self, model: ModelSpec) -> float:
        heads = 1 + sum(mixer.heads(model.d_model) for mixer in model.mixers())
        return self.sequences * (ceil(log2(self.length)) + 1) * heads
