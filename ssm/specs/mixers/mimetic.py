"""Which parts of mimetic initialization a mixer takes."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import GetJsonSchemaHandler, model_validator
from pydantic.json_schema import JsonSchemaValue
from pydantic_core import CoreSchema

from ssm.specs.base import Spec

HELPER = True


class Mimetic(Spec):
    """Mimetic initialization (Trockman et al. 2024, Section 3), its four parts each on its own switch.

    A model gives it to chosen layers through `mixer_at`. On is all four, with the c that the paper fixes where it
    compares them (Figure 3); off is none.
    """

    a: Literal[2, 4, 8] | None = None  # c: A = -exp(-c A_log), almost 0, so that nothing decays (but where A_log is 0:
    # the first state of Mamba-1); None: A = -exp(A_log)
    dt: bool = False  # dt is 1 whatever the input: its weight 0, its bias the inverse softplus of 1
    bc: bool = False  # W_C becomes (W_C + W_B) / 2, so that W_C^T W_B resembles the identity
    conv: bool = False  # the convolution passes the present input on, unchanged

    @model_validator(mode="before")
    @classmethod
    def _on_or_off(cls, value: Any) -> Any:
        if isinstance(value, bool):
            return {"a": 8, "dt": True, "bc": True, "conv": True} if value else {}
        return value

    @classmethod
    def __get_pydantic_json_schema__(cls, core: CoreSchema, handler: GetJsonSchemaHandler) -> JsonSchemaValue:
        return {"anyOf": [handler(core), {"type": "boolean"}]}
