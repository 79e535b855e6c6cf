"""What making the weights took."""

from __future__ import annotations

from typing import Literal, Self

from ssm.specs.config import Rehearsal
from ssm.specs.measurements.base import Arm, ArmsEntry, OfRecord, Work
from ssm.specs.training import RunSpec


class Compute(OfRecord):
    """Tokens that a run trained on and that the search of a repair read, its parents not counted, and seconds."""

    kind: Literal["compute"] = "compute"

    @classmethod
    def planned(cls, entry: ArmsEntry, arm: Arm, where: str) -> Self:
        return cls.parse(entry.given(), where)

    def work(self, run: RunSpec | None) -> tuple[Work, ...]:
        return ()

    def capped(self, caps: Rehearsal, context: int) -> Self:
        return self  # the run is capped
