"""What kind of recurrence models are."""

from __future__ import annotations

from typing import Annotated, ClassVar, Literal, Self

from pydantic import Field

from ssm.base.schema import Schema
from ssm.specs.config import DryRun
from ssm.specs.measurements.base import OfModels, Work
from ssm.specs.training import RunSpec


class Taxonomy(OfModels):
    """What kind of recurrence every model's mixer is, declared and measured (ls Table 2, bn App. B)."""

    table: ClassVar[Schema] = Schema(
        "taxonomy",
        "one named model's recurrence: what its spec declares, and what was measured on the mixer of most layers",
        {
            "model": str,
            "mixer": str,
            "system": str,  # its published name
            "paper": str,
            "scan": str,  # the operation that carries it
            "decay": str,  # what one decay is shared by
            "complex": bool,
            "recurrence": str,  # lines of LaTeX
            "state_shape": str,  # of one sequence in one layer
            "state_numbers": int,  # in the state of one sequence and layer after one token
            "state_numbers_late": int,  # after `length` tokens
            "length": int,
            "selective": bool,  # measured: what remains of an initial state depends on the input; null: it grows
            "linear": bool,  # measured: what remains is proportional to the initial state; null: it grows
            "identity": bool,  # measured: what remains is the initial state, whole (A_t = I); null: it grows
        },
        keys=("model",),
    )
    kind: Literal["taxonomy"] = "taxonomy"
    length: Annotated[int, Field(ge=2)] = 64  # tokens over which the state is watched
    seed: int = 8

    def work(self, run: RunSpec | None) -> tuple[Work, ...]:
        return ()

    def capped(self, caps: DryRun) -> Self:
        return self
