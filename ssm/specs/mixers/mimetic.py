"""The parts of mimetic initialization."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import GetJsonSchemaHandler, model_validator
from pydantic.json_schema import JsonSchemaValue
from pydantic_core import CoreSchema

from ssm.specs.base import Spec

HELPER = True


class Mimetic(Spec):
    """Mimetic initialization (Trockman et al. 2024, Section 3), with a key for each of its four parts.

    `true` stands for all four parts, with the c of the paper's comparison (Figure 3), and `false` for none. To choose
    layers, use `mixer_at` of the model.
    """

    # c in A = -exp(-c A_log). A is then almost 0, so states do not decay. The exception is A_log = 0, as in the first
    # state of Mamba-1. Without this key, A = -exp(A_log).
    a: Literal[2, 4, 8] | None = None
    dt: bool = False  # dt is 1 for every input: its weight is 0, its bias the inverse softplus of 1
    bc: bool = False  # W_C becomes (W_C + W_B) / 2, so that W_C^T W_B is close to the identity
    conv: bool = False  # the convolution outputs the current input

    @model_validator(mode="before")
    @classmethod
    def _on_or_off(cls, value: Any) -> Any:
        if isinstance(value, bool):
            return {"a": 8, "dt": True, "bc": True, "conv": True} if value else {}
        return value

    @classmethod
    def __get_pydantic_json_schema__(cls, core: CoreSchema, handler: GetJsonSchemaHandler) -> JsonSchemaValue:
        return {"anyOf": [handler(core), {"type": "boolean"}]}
