"""What every ffn is: the mixers' interface, with a state that is empty for most."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any

from torch import Tensor, nn

FfnState = dict[str, Tensor]  # named tensors with the batch first


class Ffn(nn.Module, ABC):
    """x (B, T, D), the state it starts from (None: zero), resets (B, T) bool -> y (B, T, D) and the state after it."""

    def __init__(self, spec: Any, d_model: int, n_layers: int):
        """
        Args:
            spec: the ffn's own spec.
            d_model: width D of the residual stream.
            n_layers: layers of the whole model, which some initializations scale by.
        """
        super().__init__()
        self.spec, self.d_model, self.n_layers = spec, d_model, n_layers

    def initialize_at(self, layer: int) -> None:
        """Called once, before any weight is loaded: what the paper's initialization draws from the layer's number."""

    @abstractmethod
    def forward(
        self, x: Tensor, state: FfnState | None = None, resets: Tensor | None = None
    ) -> tuple[Tensor, FfnState]:
        """A whole sequence."""

    @abstractmethod
    def step(self, x: Tensor, state: FfnState | None = None) -> tuple[Tensor, FfnState]:
        """One token, (B, D) -> (B, D)."""
