"""The two sublayers of a block, mixer and ffn: a sequence from a state to a state, and one token at a time."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any

from torch import Tensor, nn

SublayerState = dict[str, Tensor]  # named tensors with the batch first


class Sublayer(nn.Module, ABC):
    """One layer's mixer or ffn."""

    def __init__(self, spec: Any, d_model: int, n_layers: int):
        """
        Args:
            spec: the sublayer's own spec.
            d_model: width D of the residual stream.
            n_layers: layers of the whole model, which some initializations scale by.
        """
        super().__init__()
        self.spec, self.d_model, self.n_layers = spec, d_model, n_layers

    def initialize_at(self, layer: int) -> None:
        """Called once, before any weight is loaded: what the paper's initialization draws from the layer's number."""

    @abstractmethod
    def forward(
        self, u: Tensor, state: SublayerState | None = None, resets: Tensor | None = None
    ) -> tuple[Tensor, SublayerState]:
        """A whole sequence: the parallel form.

        Args:
            u: inputs, (B, T, D).
            state: what the sequence starts from; None is the zero state.
            resets: (B, T) bool; True forgets all that came before step t.

        Returns:
            y (B, T, D) and the state after the last step.
        """

    @abstractmethod
    def step(self, u: Tensor, state: SublayerState | None = None) -> tuple[Tensor, SublayerState]:
        """One token, as the paper writes it: u (B, D) -> y (B, D) and the state after it."""
