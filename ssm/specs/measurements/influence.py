"""The spec of the influence of tokens on the last output."""

from __future__ import annotations

from typing import ClassVar, Literal

from pydantic import PositiveInt

from ssm.base.schema import Schema
from ssm.specs.base import ReadCount
from ssm.specs.measurements.base import OfWindows
from ssm.specs.model import ModelSpec
from ssm.specs.training import RunSpec

BACKWARD = 2  # duration of a backward pass, in forward passes


class Influence(OfWindows):
    """log |dy_t/dx_s|, where y_t is the output of the last token, by the distance t - s (bn Section 3.1).

    y_t is the hidden activation after the final norm, and x_s is the input of the first layer. The norm is the
    Frobenius norm. `directions` replaces the D coordinates of y_t by random orthonormal directions. The squared norm is
    scaled so that its mean stays the same.
    """

    table: ClassVar[Schema] = Schema(
        "influence",
        "one sequence, one token: how much the output at the last token depends on it (bn Section 3.1)",
        {
            "sequence": int,
            "distance": int,  # t - s, from the token to the last token
            "log_influence": float,  # natural logarithm of the Frobenius norm of dy_t/dx_s; -inf if it is 0
        },
        keys=("sequence", "distance"),
        sample="sequence",
    )
    backward: ClassVar[bool] = True
    kind: Literal["influence"] = "influence"
    sequences: ReadCount = 16
    seed: int = 11
    directions: PositiveInt | None = None  # number of directions, one backward pass each; without it, exact

    def passes(self, model: ModelSpec) -> int:
        """Number of backward passes over every sequence."""
        return min(self.directions or model.d_model, model.d_model)

    def read(self, run: RunSpec) -> tuple[float, int]:
        return self.sequences * self.length * (1 + BACKWARD * self.passes(run.own_model)), self.length

    def rows(self, model: ModelSpec) -> float:
        return self.sequences * self.length
