"""The spec of RWKV-4."""

from __future__ import annotations

from typing import ClassVar, Literal

from ssm.specs.mixers.base import MixerSpecBase, Taxonomy
from ssm.specs.sublayer import ActivationMemory, linear


class Rwkv4Mixer(MixerSpecBase):
    """The time mixing of RWKV-4 (Peng et al. 2023, "RWKV: Reinventing RNNs for the Transformer Era", Section 3)."""

    taxonomy: ClassVar[Taxonomy] = Taxonomy(
        system="RWKV-4",
        paper="Peng et al. 2023",
        scan="diagonal_scan",
        decay="by channel",
        complex=False,
        recurrence=(
            r"$h_t = (e^{-w} d_{t-1} h_{t-1} + e^{k_t} v_t) / d_t$",
            r"$d_t = e^{-w} d_{t-1} + e^{k_t}$",
            r"$y_t = r_t (d_{t-1} h_{t-1} + e^{u + k_t} v_t)$",
            r"$\quad / \, (d_{t-1} + e^{u + k_t})$",
        ),
    )
    has_map: ClassVar[bool] = False  # its readout is a ratio
    averages: ClassVar[bool] = True
    receptive_field: ClassVar[int] = 2  # a token is mixed with the one before it
    kind: Literal["rwkv4"] = "rwkv4"

    def heads(self, d_model: int) -> int:
        return 2 * d_model  # averages h_t and weights d_t of the channels

    def h_heads(self, d_model: int) -> int:
        return d_model

    def state_shape(self, d_model: int) -> tuple[int, ...]:
        return (self.heads(d_model), 1)

    def parameters(self, d_model: int) -> int:
        D = d_model
        return 4 * linear(D, D) + 5 * D  # r, k, v, output; the mixes of r, k, v, w and u

    def input_numbers(self, d_model: int) -> int:
        return d_model

    def activation_memory(self, d_model: int) -> ActivationMemory:
        return ActivationMemory(19 * d_model)  # r, k, v and their mixed inputs; both scans; the average and its parts
