"""What making the weights took."""

from __future__ import annotations

from typing import ClassVar, Literal, Self

from ssm.base.schema import Schema
from ssm.specs.config import DryRun
from ssm.specs.measurements.base import Arm, ArmsEntry, OfRecord, Work
from ssm.specs.training import RunSpec


class Compute(OfRecord):
    """Tokens that a run trained on and that the search of a repair read, its parents not counted, and seconds."""

    table: ClassVar[Schema] = Schema(
        "compute",
        "a run, its parents not counted",
        {
            "stage": int,  # 0: it began with fresh weights, or weights from elsewhere; 1: with those of such a run ...
            "trained": int,  # tokens that it was trained on
            "read": int,  # tokens that went forward to choose the numbers of a repair
            "forward": int,  # both in tokens of a forward pass: one that is trained on takes three
            "passes": int,  # forward passes of a token that is read afterwards
            "seconds": float,  # that the run took
        },
        keys=("stage",),
    )
    kind: Literal["compute"] = "compute"

    @classmethod
    def planned(cls, entry: ArmsEntry, arm: Arm, where: str) -> Self:
        return cls.parse(entry.given(), where)

    def work(self, run: RunSpec | None) -> tuple[Work, ...]:
        return ()

    def capped(self, caps: DryRun, context: int) -> Self:
        return self  # the run is capped
