"""The spec of the taxonomy of recurrences."""

from __future__ import annotations

from typing import Annotated, ClassVar, Literal

from pydantic import Field

from ssm.base.schema import Schema
from ssm.specs.measurements.base import OfModels


class Taxonomy(OfModels):
    """Properties of the recurrence of each model, declared and measured (ls Table 2, bn App. B)."""

    table: ClassVar[Schema] = Schema(
        "taxonomy",
        "one named model's recurrence: the declaration in its spec, and measurements on the mixer of most layers",
        {
            "model": str,
            "mixer": str,
            "system": str,  # published name
            "paper": str,
            "scan": str,  # operation for the states
            "decay": str,  # the parts of the state that have their own decay
            "complex": bool,
            "recurrence": str,  # lines of LaTeX
            "state_shape": str,  # of one sequence in one layer
            "state_numbers": int,  # size of the state of one sequence and layer after one token
            "state_numbers_late": int,  # after `length` tokens
            "length": int,
            # Measured; null: the state grows.
            "selective": bool,  # whether the remainder of an initial state depends on the input
            "linear": bool,  # whether the remainder is proportional to the initial state
            "identity": bool,  # whether the remainder is the whole initial state (A_t = I)
        },
        keys=("model",),
    )
    kind: Literal["taxonomy"] = "taxonomy"
    length: Annotated[int, Field(ge=2)] = 64  # measure the size of the state after this number of tokens
    seed: int = 8  # of initialization, inputs and states
