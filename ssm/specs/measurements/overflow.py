"""When the state of a linear recurrence leaves the range of its number format."""

from __future__ import annotations

from typing import Annotated, ClassVar, Literal, Self

from pydantic import Field, PositiveInt, model_validator

from ssm.base.schema import Schema
from ssm.specs.base import Distinct
from ssm.specs.config import DryRun
from ssm.specs.measurements.base import OfNothing, Work
from ssm.specs.training import RunSpec

MOST_STEPS = 2**20  # of every weight in every draw
Format = Literal["float16", "bfloat16", "float32", "float64"]
Arithmetic = Literal["reference", "torch", "cpp", "loop"]


class Overflow(OfNothing):
    """The step at which h_t = a h_{t-1} + b overflows, by number format, in our scans and in a plain loop (ls eq. 40).

    With h_0 = 0 and |b| = g M, where M is the format's largest number, the state stays finite for all time if
    1 - a > g. Weights are given by where they stand to that: a = 1 - share * g.
    """

    table: ClassVar[Schema] = Schema(
        "overflow",
        "one channel h_t = a h_{t-1} + b_t with |b_t| = g M, M the largest number of a format, in one arithmetic",
        {
            "format": str,
            # A backend of diagonal_scan; loop: every step rounded to the format; bound: ls eq. 39 in place of a state
            "arithmetic": str,
            "state": str,  # carried: as the arithmetic carries it; stored: rounded to the format
            "inputs": str,  # constant: all of one sign; random: signs drawn anew at every step
            "halvings": int,  # g = 2^-halvings
            "share": float,  # (1 - a) / g that was asked for; above 1 ls eq. 40 holds
            "draw": int,  # of the signs; of constant inputs 1
            "weight": float,  # a, as the format holds it
            "above": bool,  # whether a > 1 - g, so that ls eq. 40 promises nothing
            "predicted": int,  # the first t at which the bound on |h_t| (ls eq. 39) is above M; null: never
            "steps": int,  # that were read
            "position": int,  # the first t at which the state is no finite number; null: at none
            "overflows": bool,
            "scaled": float,  # position times g
            "within": bool,  # whether it overflows between half and twice the predicted step; null: none is
        },
        keys=("format", "arithmetic", "state", "inputs", "halvings", "share", "draw"),
        sample="draw",
    )
    kind: Literal["overflow"] = "overflow"
    formats: Annotated[tuple[Format, ...], Field(strict=False, min_length=1), Distinct]
    arithmetics: Annotated[tuple[Arithmetic, ...], Field(strict=False, min_length=1), Distinct]
    halvings: Annotated[tuple[PositiveInt, ...], Field(strict=False, min_length=1), Distinct]  # g = 2^-halvings
    shares: Annotated[tuple[float, ...], Field(strict=False, min_length=1), Distinct]
    draws: PositiveInt = 8  # of inputs with random signs
    lengths: PositiveInt = 8  # steps that are read, in 1 / g of the smallest g
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

    def work(self, run: RunSpec | None) -> tuple[Work, ...]:
        return ()

    def capped(self, caps: DryRun) -> Self:
        return self.model_copy(update={"draws": min(self.draws, caps.max_sequences), "lengths": 1})
