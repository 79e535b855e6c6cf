"""The spec of the correlation of the weights of B and C."""

from __future__ import annotations

from typing import ClassVar, Literal, Self

from ssm.base.schema import Schema
from ssm.specs.config import DryRun
from ssm.specs.measurements.base import OfRun, Work
from ssm.specs.model import ModelSpec
from ssm.specs.training import RunSpec


class BcCorrelation(OfRun):
    """How similar the weights of B and C are in each layer (mi Section 6). B writes to the state, and C reads it.

    With mimetic initialization, W_C is the mean of W_B and of independent weights: the correlation is .71. The model
    needs a layer of Mamba or Mamba-2.
    """

    table: ClassVar[Schema] = Schema(
        "bc_correlation",
        "one layer that has B and C: the correlation of all elements of W_B with those of W_C",
        {"layer": int, "correlation": float},  # layers are counted from 1
        keys=("layer",),
    )
    kind: Literal["bc_correlation"] = "bc_correlation"

    def lacking(self, model: ModelSpec) -> str | None:
        return None if any(mixer.has_bc for mixer in model.mixers()) else "linear maps to B and C (Mamba, Mamba-2)"

    def work(self, run: RunSpec | None) -> tuple[Work, ...]:
        return ()

    def read(self, run: RunSpec) -> tuple[float, int]:
        return 0, 0

    def capped(self, caps: DryRun, context: int) -> Self:
        return self
