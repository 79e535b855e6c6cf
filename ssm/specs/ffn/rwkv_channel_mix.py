"""The spec of the channel mixing of RWKV."""

from __future__ import annotations

from typing import ClassVar, Literal

from pydantic import PositiveInt

from ssm.specs.ffn.base import FfnSpecBase
from ssm.specs.sublayer import ActivationMemory, linear


class RwkvChannelMix(FfnSpecBase):
    """The channel mixing of RWKV (Peng et al. 2023, Section 3.1; 2024 and 2025, Section 4).

    The papers use `d_hidden` 4 D in RWKV-4, 3.5 D in RWKV-6, and 4 D without receptance in RWKV-7.
    """

    later: ClassVar[frozenset[str]] = frozenset({"receptance"})
    kind: Literal["rwkv_channel_mix"] = "rwkv_channel_mix"
    d_hidden: PositiveInt  # hidden width
    # The token that the learned weights of the token shift multiply: `before` in RWKV-6, `present` in RWKV-4.
    mix: Literal["before", "present"] = "before"
    receptance: bool = True  # sigmoid(W_r x_r) multiplies the output; RWKV-7 has none

    def parameters(self, d_model: int) -> int:
        D, hidden = d_model, self.d_hidden
        key = linear(D, hidden) + linear(hidden, D) + D  # W_k, W_v, the mix of k
        return key + self.receptance * (linear(D, D) + D)  # W_r, the mix of r

    def state_numbers(self, d_model: int, context: int) -> int:
        return d_model  # the last token's input

    def activation_memory(self, d_model: int) -> ActivationMemory:
        receptance = 3 * d_model * self.receptance  # r mixed, r, its product with v
        return ActivationMemory(receptance + d_model + 2 * self.d_hidden)  # k mixed; k, relu of it squared
