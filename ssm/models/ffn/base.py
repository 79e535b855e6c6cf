"""What every ffn is: the mixers' interface, with a state that is empty for most."""

from __future__ import annotations

from typing import Any

from ssm.base.plugin_modules import Modules
from ssm.models.sublayer import Sublayer, SublayerState
from ssm.specs.ffn import SPECS

FFNS: Modules[type[Ffn]] = Modules("ssm.models.ffn", SPECS)

FfnState = SublayerState


class Ffn(Sublayer):
    """One layer's ffn: it works on every position by itself, or looks a token back."""

    def __init_subclass__(cls, kind: str | None = None, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        if kind is not None:  # else it is what several share
            FFNS.add(kind, cls)
