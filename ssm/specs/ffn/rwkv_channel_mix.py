"""The spec of RWKV's channel mixing."""

from __future__ import annotations

from typing import ClassVar, Literal

from pydantic import PositiveInt

from ssm.specs.ffn.base import FfnSpecBase
from ssm.specs.sublayer import ActivationMemory, linear


class RwkvChannelMix(FfnSpecBase):
    """RWKV's channel mixing (Peng et al. 2023, eq. 18-20; 2024, 2025, Section 4).

    4 D hidden in RWKV-4, 3.5 D in RWKV-6; 4 D in RWKV-7, which has no receptance.
    """

    later: ClassVar[frozenset[str]] = frozenset({"receptance"})
    kind: Literal["rwkv_channel_mix"] = "rwkv_channel_mix"
    d_hidden: PositiveInt
    mix: Literal["before", "present"] = "before"  # which token the learned mixes weigh: RWKV-6's, or RWKV-4's
    receptance: bool = True  # sigmoid(W_r x_r) weighs the output; RWKV-7's has none

    def parameters(self, d_model: int) -> int:
        D, hidden = d_model, self.d_hidden
        key = linear(D, hidden) + linear(hidden, D) + D  # W_k, W_v, the mix of k
        return key + self.receptance * (linear(D, D) + D)  # W_r, the mix of r

    def state_numbers(self, d_model: int, context: int) -> int:
        return d_model  # the last token's input

    def activation_memory(self, d_model: int) -> ActivationMemory:
        receptance = 3 * d_model * self.receptance  # r mixed, r, its product with v
        return ActivationMemory(receptance + d_model + 2 * self.d_hidden)  # k mixed; k, relu of it squared
