"""The spec of what is left of a state after more tokens."""

from __future__ import annotations

from typing import Annotated, ClassVar, Literal

from pydantic import Field

from ssm.base.schema import Schema
from ssm.specs.base import ReadCount
from ssm.specs.measurements.base import OfWindows
from ssm.specs.model import ModelSpec
from ssm.specs.training import RunSpec

READS = 2  # times that a token is read: once by the model; in the second half, twice more by every mixer


class StateRetention(OfWindows):
    """What is left of the state of the first half of a window after the second half, by head.

    Each mixer reads the second half twice, with the same inputs: from the state that the first half left, and from a
    state whose memory is empty. The share that is left is the norm of the difference between the two final memories,
    divided by the norm of the first memory. In a linear recurrence it is |A_t ... A_1 h| / |h|, also if A_t is a matrix
    (delta rule). So this works for every system but attention. The memory of linear attention is its sum of products,
    without the normalizer. That of RWKV-4 is an average. There, and in the GRU, the share can be above 1.
    """

    table: ClassVar[Schema] = Schema(
        "state_retention",
        "one sequence, one layer (0: all): how much of the heads' state is left after half of the window",
        {
            "sequence": int,
            "layer": int,
            "log_share": float,  # mean over heads of the logarithm of the share that is left, at least 1e-6
            "forgetting": float,  # share of heads in which at most 1/e is left
        },
        keys=("sequence", "layer"),
        sample="sequence",
    )
    kind: Literal["state_retention"] = "state_retention"
    length: Annotated[int, Field(ge=2)]  # tokens of a window; its first half makes the state
    sequences: ReadCount = 16
    seed: int = 12

    def read(self, run: RunSpec) -> tuple[float, int]:
        return self.sequences * self.length * READS, self.length

    def lacking(self, model: ModelSpec) -> str | None:
        return None if model.recurrent else "a recurrent state"

    def rows(self, model: ModelSpec) -> float:
        return self.sequences * (1 + model.n_layers)
