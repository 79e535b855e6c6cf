"""What kind of recurrence models are."""

from __future__ import annotations

from typing import Annotated, Literal, Self

from pydantic import Field

from ssm.specs.config import Rehearsal
from ssm.specs.measurements.base import OfModels, Work
from ssm.specs.training import RunSpec


class Taxonomy(OfModels):
    """What kind of recurrence every model's mixer is, declared and measured (ls Table 2, bn App. B)."""

    kind: Literal["taxonomy"] = "taxonomy"
    length: Annotated[int, Field(ge=2)] = 64  # tokens over which the state is watched
    seed: int = 8

    def work(self, run: RunSpec | None) -> tuple[Work, ...]:
        return ()

    def capped(self, caps: Rehearsal) -> Self:
        return self
