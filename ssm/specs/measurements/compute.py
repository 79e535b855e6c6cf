"""The spec of the cost of a run."""

from __future__ import annotations

from typing import ClassVar, Literal

from ssm.base.schema import Schema
from ssm.specs.measurements.base import OfRecord


class Compute(OfRecord):
    """Tokens and seconds that a run took for training, or for the search of a repair, without its parents."""

    table: ClassVar[Schema] = Schema(
        "compute",
        "a run, without its parents",
        {
            "stage": int,  # 0: it started from fresh or imported weights; 1: from the weights of stage 0 ...
            "trained": int,  # training tokens
            "read": int,  # tokens in forward passes that chose the numbers of a repair
            # Both as tokens in forward passes. A training token counts three, and four with activation_checkpointing.
            "forward": int,
            "passes": int,  # forward passes for each token that the final model reads
            "seconds": float,  # duration of the run
        },
        keys=("stage",),
    )
    kind: Literal["compute"] = "compute"
