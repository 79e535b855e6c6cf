"""The smoothness of signals inside the layers."""

from __future__ import annotations

from typing import Literal

from pydantic import PositiveInt

from ssm.specs.measurements.base import OfWindows
from ssm.specs.model import ModelSpec
from ssm.specs.training import RunSpec

PASSES = 3  # through every mixer: for its coefficients, for its output, for the block's
SIGNALS = 5


class Smoothness(OfWindows):
    """The mean pairwise distance E(x) of tokens (bn Section 4.2), of every layer's b_t, h_t, mixer and block output."""

    kind: Literal["smoothness"] = "smoothness"
    sequences: PositiveInt = 16
    seed: int = 12

    def read(self, run: RunSpec) -> tuple[float, int]:
        return self.sequences * self.length * PASSES, self.length

    def rows(self, model: ModelSpec) -> float:
        return self.sequences * model.n_layers * SIGNALS
