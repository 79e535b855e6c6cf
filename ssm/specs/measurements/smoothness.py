"""The smoothness of signals inside the layers."""

from __future__ import annotations

from typing import ClassVar, Literal

from ssm.base.schema import Schema
from ssm.specs.base import ReadCount
from ssm.specs.measurements.base import OfWindows
from ssm.specs.model import ModelSpec
from ssm.specs.training import RunSpec

PASSES = 3  # through every mixer: for its coefficients, for its output, for the block's
SIGNALS = 5


class Smoothness(OfWindows):
    """The mean pairwise distance E(x) of tokens (bn Section 4.2), of every layer's b_t, h_t, mixer and block output."""

    table: ClassVar[Schema] = Schema(
        "smoothness",
        "one sequence, one layer, one of its signals: how different its tokens are (bn Section 4.2)",
        {
            "sequence": int,
            "layer": int,  # 1, 2, ...
            "depth": float,  # layer / layers of the model
            "signal": str,  # b: b_t; input: Delta_t b_t; h: the state h_t; mixer, block: their outputs
            "pairwise_distance": float,  # E(x): 1 where tokens are uncorrelated, 0 where they are all the same
            "relative_to_b": float,  # over that of b in this layer; null where the layer is no linear recurrence
        },
        keys=("sequence", "layer", "depth", "signal"),
        sample="sequence",
    )
    kind: Literal["smoothness"] = "smoothness"
    sequences: ReadCount = 16
    seed: int = 12

    def read(self, run: RunSpec) -> tuple[float, int]:
        return self.sequences * self.length * PASSES, self.length

    def rows(self, model: ModelSpec) -> float:
        return self.sequences * model.n_layers * SIGNALS
