"""How long states remember."""

from __future__ import annotations

from typing import ClassVar, Literal

from ssm.base.schema import Schema
from ssm.specs.base import ReadCount
from ssm.specs.measurements.base import OfWindows
from ssm.specs.model import ModelSpec

OCTAVES = 20  # of the cumulative histogram, from 1 token on


class MemoryLength(OfWindows):
    """After how many tokens a state has 1/e left of what it held, -1 / (mean of log A_t), as a cumulative histogram."""

    table: ClassVar[Schema] = Schema(
        "memory_length",
        "one sequence, one layer (0: all), so many tokens: the share of its states with 1/e or less left after these",
        {"sequence": int, "layer": int, "tokens": int, "share": float},
        keys=("sequence", "layer", "tokens"),
        sample="sequence",
    )
    kind: Literal["memory_length"] = "memory_length"
    sequences: ReadCount = 16
    seed: int = 12

    def rows(self, model: ModelSpec) -> float:
        return self.sequences * (1 + model.n_layers) * (1 + OCTAVES)
