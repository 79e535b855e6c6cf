"""The spec of the overflow of linear recurrences."""

from __future__ import annotations

from typing import Annotated, ClassVar, Literal, Self

from pydantic import Field, PositiveInt, model_validator

from ssm.base.schema import Schema
from ssm.specs.base import Distinct, PositiveInts
from ssm.specs.config import DryRun
from ssm.specs.measurements.base import OfNothing

MOST_STEPS = 2**20  # for each weight and draw
Format = Literal["float16", "bfloat16", "float32", "float64"]
Arithmetic = Literal["reference", "torch", "cpp", "loop"]


class Overflow(OfNothing):
    """The step at which h_t = a h_{t-1} + b overflows, by number format, in scans and in a plain loop (ls eq. 40).

    h_0 = 0 and |b| = g M, where M is the largest number of the format. The state stays finite forever if 1 - a > g. The
    weights are a = 1 - share * g.
    """

    table: ClassVar[Schema] = Schema(
        "overflow",
        "one channel h_t = a h_{t-1} + b_t with |b_t| = g M, M the largest number of a format, in one arithmetic",
        {
            "format": str,
            # A backend of diagonal_scan. loop: each step is rounded to the format. bound: the bound of ls eq. 39.
            "arithmetic": str,
            "state": str,  # carried: in the precision of the arithmetic; stored: rounded to the format
            "inputs": str,  # constant: same sign; random: a random sign at every step
            "halvings": int,  # g = 2^-halvings
            "share": float,  # (1 - a) / g before rounding; above 1, ls eq. 40 holds
            "draw": int,  # of the signs; 1 for constant inputs
            "weight": float,  # a, rounded to the format
            "above": bool,  # whether a > 1 - g, so that ls eq. 40 does not apply
            "predicted": int,  # the first t at which the bound on |h_t| (ls eq. 39) is above M; null: never
            "steps": int,  # number of steps
            "position": int,  # the first t at which the state is not finite; null: never
            "overflows": bool,
            "scaled": float,  # position times g
            "within": bool,  # whether it overflows between half and twice the predicted step; null: no prediction
        },
        keys=("format", "arithmetic", "state", "inputs", "halvings", "share", "draw"),
        sample="draw",
    )
    kind: Literal["overflow"] = "overflow"
    formats: Annotated[tuple[Format, ...], Field(strict=False, min_length=1), Distinct]  # number formats
    # backends of the scan, or `loop`, which rounds each step to the format
    arithmetics: Annotated[tuple[Arithmetic, ...], Field(strict=False, min_length=1), Distinct]
    halvings: PositiveInts  # k in g = 2^-k
    shares: Annotated[tuple[float, ...], Field(strict=False, min_length=1), Distinct]  # weights, as (1 - a) / g
    draws: PositiveInt = 8  # number of draws of inputs with random signs
    lengths: PositiveInt = 8  # number of steps, as a multiple of 1 / g for the smallest g
    seed: int = 42  # of the signs

    @model_validator(mode="after")
    def _weights(self) -> Self:
        largest = 2.0 ** -min(self.halvings)
        if max(self.shares) * largest >= 1:
            raise ValueError(f"shares: a weight 1 - {max(self.shares):g} * {largest:g} is not above 0")
        if self.lengths * 2 ** max(self.halvings) > MOST_STEPS:
            raise ValueError(
                f"lengths: {self.lengths} * 2^{max(self.halvings)} is more than {MOST_STEPS:,} steps; "
                "give fewer lengths or halvings"
            )
        return self

    def capped(self, caps: DryRun) -> Self:
        return self.model_copy(update={"draws": min(self.draws, caps.max_sequences), "lengths": 1})
