"""The base class for specs of feed-forward layers."""

from __future__ import annotations

from typing import Any, ClassVar

from ssm.base.discovery import Registry
from ssm.specs.base import PluginSpec
from ssm.specs.sublayer import SublayerSpec

SPECS: Registry[type[FfnSpecBase]] = Registry("ssm.specs.ffn")


class FfnSpecBase(SublayerSpec, PluginSpec):
    """The second half of a block. It reads one position at a time, or that and the token before."""

    registry: ClassVar[Registry[Any]] = SPECS

    def state_numbers(self, d_model: int, context: int) -> int:
        return 0
