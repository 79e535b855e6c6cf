"""What the specs of all ffns share."""

from __future__ import annotations

from typing import Any

from ssm.base.discovery import Registry
from ssm.specs.sublayer import SublayerSpec

SPECS: Registry[type[FfnSpecBase]] = Registry("ssm.specs.ffn")  # those that stand in this folder


class FfnSpecBase(SublayerSpec):
    """The second half of a block: it works on every position by itself, or looks a token back."""

    @classmethod
    def __pydantic_init_subclass__(cls, **kwargs: Any) -> None:
        super().__pydantic_init_subclass__(**kwargs)
        SPECS.add_spec(cls)
