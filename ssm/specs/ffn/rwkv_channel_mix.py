"""The spec of RWKV's channel mixing."""

from __future__ import annotations

from typing import Literal

from pydantic import PositiveInt

from ssm.specs.ffn.base import FfnSpecBase
from ssm.specs.part import Kept, linear


class RwkvChannelMix(FfnSpecBase):
    """RWKV's channel mixing (Peng et al. 2023, eq. 18-20; 2024, Section 4): 4 D hidden in RWKV-4, 3.5 D in RWKV-6."""

    kind: Literal["rwkv_channel_mix"] = "rwkv_channel_mix"
    d_hidden: PositiveInt
    mix: Literal["before", "present"] = "before"  # which token the learned mixes weigh: RWKV-6's, or RWKV-4's

    def parameters(self, d_model: int) -> int:
        D, hidden = d_model, self.d_hidden
        return linear(D, D) + linear(D, hidden) + linear(hidden, D) + 2 * D  # W_r, W_k, W_v; the mixes of r and k

    def state_numbers(self, d_model: int, context: int) -> int:
        return d_model  # the last token's input

    def kept(self, d_model: int) -> Kept:
        return Kept(4 * d_model + 2 * self.d_hidden)  # r and k mixed, r, its product with v; k, relu of it squared
