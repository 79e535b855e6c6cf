"""The base class of all feed-forward layers."""

from __future__ import annotations

from typing import Any

from torch import Tensor

from ssm.base.plugin_modules import Modules
from ssm.models.state import LayerOutput, LayerState
from ssm.models.sublayer import Sublayer
from ssm.specs.ffn import SPECS

FFNS: Modules[type[Ffn]] = Modules("ssm.models.ffn", SPECS)


class Ffn(Sublayer):
    """The feed-forward layer of one block. It has the interface of a mixer; most have no state."""

    def __init_subclass__(cls, kind: str | None = None, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        if kind is not None:  # else it is a base class
            FFNS.add(kind, cls)

    def step(self, x: Tensor, state: LayerState | None = None) -> LayerOutput:
        """One token, x (B, D). An ffn with a state overrides this."""
        return self(x)
