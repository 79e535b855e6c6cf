"""The interface of the two sublayers of a block, mixer and ffn: whole sequences, and one token at a time."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any

from torch import Tensor, nn

from ssm.models.state import LayerOutput, LayerState


class Sublayer(nn.Module, ABC):
    """One layer's mixer or ffn."""

    def __init__(self, spec: Any, d_model: int, n_layers: int):
        """
        Args:
            spec: the spec of the sublayer.
            d_model: width D of the residual stream.
            n_layers: number of layers of the model, which some initializations depend on.
        """
        super().__init__()
        self.spec, self.d_model, self.n_layers = spec, d_model, n_layers

    def initialize_at(self, layer: int) -> None:
        """Set weights that depend on the layer, counted from 0. Called once, after the constructor."""

    @abstractmethod
    def forward(self, u: Tensor, state: LayerState | None = None, resets: Tensor | None = None) -> LayerOutput:
        """A whole sequence, in the parallel form.

        Args:
            u: inputs, (B, T, D).
            state: the initial state; None is the zero state.
            resets: (B, T) bool; True resets the state before step t.

        Returns:
            y (B, T, D) and the state after the last step.
        """

    @abstractmethod
    def step(self, u: Tensor, state: LayerState | None = None) -> LayerOutput:
        """One token, in the recurrent form of the paper: u (B, D) -> y (B, D) and the state after it."""
