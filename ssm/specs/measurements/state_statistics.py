"""The spec of statistics of the state."""

from __future__ import annotations

from math import ceil, log2
from typing import ClassVar, Literal

from ssm.base.schema import Schema
from ssm.specs.base import ReadCount
from ssm.specs.measurements.base import OfWindows
from ssm.specs.model import ModelSpec


class StateStatistics(OfWindows):
    """Norm, mean and standard deviation of the state by position, layer and head (lg figures 4 and 9).

    The model needs a layer with a recurrent state: attention alone has none.
    """

    table: ClassVar[Schema] = Schema(
        "state_statistics",
        "one sequence, one position, one layer (with a state), one head (-1: all heads; layer -1: the whole state)",
        {"sequence": int, "position": int, "layer": int, "head": int, "norm": float, "mean": float, "std": float},
        keys=("sequence", "position", "layer", "head"),
        sample="sequence",
    )
    kind: Literal["state_statistics"] = "state_statistics"
    sequences: ReadCount = 16
    seed: int = 7

    @property
    def positions(self) -> list[int]:
        """The state is measured after 1, 2, 4, ... tokens and after `length`."""
        return sorted({2**i for i in range(self.length.bit_length())} | {self.length})

    def lacking(self, model: ModelSpec) -> str | None:
        return None if model.recurrent else "a recurrent state"

    def rows(self, model: ModelSpec) -> float:
        heads = 1 + sum(mixer.heads(model.d_model) for mixer in model.mixers())
        return self.sequences * (ceil(log2(self.length)) + 1) * heads
