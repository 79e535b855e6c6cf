"""The spec of the memory length of states."""

from __future__ import annotations

from typing import ClassVar, Literal

from ssm.base.schema import Schema
from ssm.specs.base import ReadCount
from ssm.specs.measurements.base import A_DECAY, OfWindows
from ssm.specs.model import ModelSpec

OCTAVES = 20  # of the cumulative histogram, from 1 token on


class MemoryLength(OfWindows):
    """Cumulative histogram of the time constants of states: tokens until 1/e is left, -1 / (mean of log A_t).

    The model needs a layer with a decay for each state. RWKV-4, the GRU, attention and the delta rule have none.
    """

    table: ClassVar[Schema] = Schema(
        "memory_length",
        "one sequence, one layer (0: all), one number of tokens: share of states with at most 1/e left after them",
        {"sequence": int, "layer": int, "tokens": int, "share": float},
        keys=("sequence", "layer", "tokens"),
        sample="sequence",
    )
    kind: Literal["memory_length"] = "memory_length"
    sequences: ReadCount = 16
    seed: int = 12

    def lacking(self, model: ModelSpec) -> str | None:
        return None if model.decaying else A_DECAY

    def rows(self, model: ModelSpec) -> float:
        return self.sequences * (1 + model.n_layers) * (1 + OCTAVES)
