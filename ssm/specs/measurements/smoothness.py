"""The spec of the smoothness of signals inside the layers."""

from __future__ import annotations

from typing import Annotated, ClassVar, Literal

from pydantic import Field

from ssm.base.schema import Schema
from ssm.specs.base import ReadCount
from ssm.specs.measurements.base import OfWindows
from ssm.specs.model import ModelSpec
from ssm.specs.training import RunSpec

PASSES = 3  # through every mixer: for its coefficients, its output, and the output of the block
SIGNALS = 5


class Smoothness(OfWindows):
    """The mean pairwise distance E(x) between tokens, for signals of each layer (bn Section 4.2).

    The signals are b_t, Delta_t b_t, the state h_t, and the outputs of mixer and block.
    """

    table: ClassVar[Schema] = Schema(
        "smoothness",
        "one sequence, one layer, one of its signals: how different its tokens are (bn Section 4.2)",
        {
            "sequence": int,
            "layer": int,  # 1, 2, ...
            "depth": float,  # layer / layers of the model
            "signal": str,  # b: b_t; input: Delta_t b_t; h: the state h_t; mixer, block: their outputs
            "pairwise_distance": float,  # E(x): 1 for uncorrelated tokens, 0 if all are equal, NaN if all are zero
            "relative_to_b": float,  # E(x) over that of b in this layer; null if the layer is not a linear recurrence
        },
        keys=("sequence", "layer", "depth", "signal"),
        sample="sequence",
    )
    kind: Literal["smoothness"] = "smoothness"
    length: Annotated[int, Field(ge=2)]  # tokens of a window; E(x) compares pairs of tokens
    sequences: ReadCount = 16
    seed: int = 12

    def read(self, run: RunSpec) -> tuple[float, int]:
        return self.sequences * self.length * PASSES, self.length

    def rows(self, model: ModelSpec) -> float:
        return self.sequences * model.n_layers * SIGNALS
