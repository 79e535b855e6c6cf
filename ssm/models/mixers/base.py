"""The base class of all mixers."""

from __future__ import annotations

from typing import Any

from torch import Tensor

from ssm.base.plugin_modules import Modules
from ssm.models.mixers.coefficients import OF_SCAN, Coefficients, scans_of
from ssm.models.state import LayerState
from ssm.models.sublayer import Sublayer
from ssm.specs.mixers import SPECS

MIXERS: Modules[type[Mixer]] = Modules("ssm.models.mixers", SPECS)


class Mixer(Sublayer):
    """The recurrence or attention of one layer, with the projections, convolution and gate of its paper."""

    @property
    def bc_weights(self) -> tuple[Tensor, Tensor] | None:
        """mi's W_B and W_C: weights of the linear maps to B and to C, of the same shape; None: there are none."""
        return None

    def __init_subclass__(cls, kind: str | None = None, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        if kind is not None:  # else it is a base class of several mixers
            MIXERS.add(kind, cls)

    def forward_with_v_first(
        self, u: Tensor, state: LayerState | None, resets: Tensor | None, v_first: Tensor | None
    ) -> tuple[Tensor, LayerState, Tensor | None]:
        """Like `forward`, with a second input from the layer before: the values of the first layer (RWKV-7).

        Args:
            u, state, resets: as in `forward`.
            v_first: the values (B, T, D) of the first layer that uses them; None: there is none before this layer.

        Returns:
            y, the state, and `v_first` for the next layer.
        """
        y, ended = self(u, state, resets)
        return y, ended, v_first

    def step_with_v_first(
        self, u: Tensor, state: LayerState | None, v_first: Tensor | None
    ) -> tuple[Tensor, LayerState, Tensor | None]:
        """`forward_with_v_first` for one token."""
        y, ended = self.step(u, state)
        return y, ended, v_first

    def coefficients(self, u: Tensor) -> Coefficients:
        """The coefficients of the recurrence from the zero state, by default those of the first scan.

        Args:
            u: inputs (after the block's norm), (B, T, D).

        Raises:
            ValueError: it is not a linear recurrence (GRU, softmax attention), or its A_t is a matrix (delta rule).
        """
        for name, inputs, options in scans_of(self, u):
            if name in OF_SCAN:
                return OF_SCAN[name](inputs, options)
        raise ValueError(f"a mixer of kind '{self.spec.kind}' has no diagonal linear recurrence: no coefficients")

    def faded(self, state: LayerState, factor: float) -> LayerState:
        """The state in which all earlier tokens weigh `factor` times as much, 0 < factor < 1.

        Inputs of convolutions and token shifts stay as they are.
        """
        return state | {"memory": factor * state["memory"]}
