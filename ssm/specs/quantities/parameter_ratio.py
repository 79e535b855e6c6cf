"""The spec of the ratio of parameters."""

from __future__ import annotations

from typing import ClassVar, Literal

from ssm.specs.quantities.base import ModelQuantity


class ParameterRatio(ModelQuantity):
    """Parameters counted here / parameters that the paper states, for one named model."""

    kind: Literal["parameter_ratio"] = "parameter_ratio"
    reads: ClassVar[tuple[str, ...]] = ("model_size",)
    definition: ClassVar[bool] = True
