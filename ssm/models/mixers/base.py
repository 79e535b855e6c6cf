"""What every mixer is: a sequence from a state to a state, and the same recurrence one token at a time."""

from __future__ import annotations

from typing import Any, ClassVar

from torch import Tensor

from ssm.base.plugin_modules import Modules
from ssm.models.sublayer import Sublayer, SublayerState
from ssm.specs.mixers import SPECS

MIXERS: Modules[type[Mixer]] = Modules("ssm.models.mixers", SPECS)

MixerState = SublayerState  # "memory" (B, H, ...) is the recurrence's own


class Mixer(Sublayer):
    """One layer's recurrence (or attention) with what its paper puts around it: projections, convolution, gate."""

    has_map: ClassVar[bool] = True  # whether its outputs are sums of its values by head

    def __init_subclass__(cls, kind: str | None = None, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        if kind is not None:  # else it is what several share
            MIXERS.add(kind, cls)

    def forward_with(
        self, u: Tensor, state: MixerState | None, resets: Tensor | None, first: Tensor | None
    ) -> tuple[Tensor, MixerState, Tensor | None]:
        """As `forward`, with what goes from layer to layer beside the residual stream: the first layer's values.

        Args:
            u, state, resets: as in `forward`.
            first: what the layer before handed on; None: nothing did.

        Returns:
            y, the state, and what the next layer is handed: what came, but for mixers that make or read it (RWKV-7).
        """
        y, ended = self(u, state, resets)
        return y, ended, first

    def step_with(
        self, u: Tensor, state: MixerState | None, first: Tensor | None
    ) -> tuple[Tensor, MixerState, Tensor | None]:
        """One token of `forward_with`."""
        y, ended = self.step(u, state)
        return y, ended, first
