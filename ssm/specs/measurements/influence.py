"""The influence of every token on the last output."""

from __future__ import annotations

from typing import ClassVar, Literal

from pydantic import PositiveInt

from ssm.base.schema import Schema
from ssm.specs.base import ReadCount
from ssm.specs.measurements.base import OfWindows
from ssm.specs.model import ModelSpec
from ssm.specs.training import RunSpec

BACKWARD = 2  # forward passes that a backward pass takes as long as


class Influence(OfWindows):
    """log |dy_t/dx_s| (bn Section 3.1) of the last token's output y_t against the distance t - s.

    y_t is the last hidden activation behind the last norm, x_s what enters the first layer; the norm is Frobenius'.
    With `directions` it is not taken over all D coordinates of y_t but over so many random orthonormal directions,
    whose squares, times D over their number, have the same mean.
    """

    table: ClassVar[Schema] = Schema(
        "influence",
        "one sequence, one token: how much the output at the last token depends on it (bn Section 3.1)",
        {
            "sequence": int,
            "distance": int,  # t - s, of the token from the last one
            "log_influence": float,  # natural logarithm of the Frobenius norm of dy_t/dx_s; -inf where it is 0
        },
        keys=("sequence", "distance"),
        sample="sequence",
    )
    backward: ClassVar[bool] = True
    kind: Literal["influence"] = "influence"
    sequences: ReadCount = 16
    seed: int = 11
    directions: PositiveInt | None = None  # a backward pass each; None: all D, exact

    def passes(self, model: ModelSpec) -> int:
        """Backward passes over every sequence."""
        return min(self.directions or model.d_model, model.d_model)

    def read(self, run: RunSpec) -> tuple[float, int]:
        return self.sequences * self.length * (1 + BACKWARD * self.passes(run.own_model)), self.length

    def rows(self, model: ModelSpec) -> float:
        return self.sequences * self.length
