"""The spec of the recurrent block of Griffin."""

from __future__ import annotations

from typing import ClassVar, Literal

from pydantic import PositiveFloat, PositiveInt

from ssm.specs.mixers.base import MixerSpecBase, Range, Taxonomy
from ssm.specs.sublayer import ActivationMemory, last_inputs, linear, short_convolution


class RglruMixer(MixerSpecBase):
    """The recurrent block of Griffin (De et al. 2024, "Griffin", Section 2.4): a short convolution and the RG-LRU."""

    taxonomy: ClassVar[Taxonomy] = Taxonomy(
        system="Griffin (RG-LRU)",
        paper="De et al. 2024",
        scan="diagonal_scan",
        decay="by channel",
        complex=False,
        recurrence=(
            r"$h_t = a_t h_{t-1} + \sqrt{1 - a_t^2} \, i_t x_t$",
            r"$y_t = h_t$",
            r"$a_t = a^{c r_t}$",
            r"gates $i_t$ and $r_t$",
        ),
    )
    range_below: ClassVar[float] = 1.0
    later: ClassVar[frozenset[str]] = frozenset({"decay"})
    kind: Literal["rglru"] = "rglru"
    width: PositiveInt | None = None  # D_RNN, channels of the recurrence; default D
    blocks: PositiveInt = 16  # number of blocks in the block-diagonal matrices of both gates
    d_conv: PositiveInt = 4  # K, width of the causal convolution
    c: PositiveFloat = 8.0  # factor on the recurrence gate r_t in a_t = a^(c r_t)
    # `constant`: the recurrence gate r_t is a learned number of each channel, the same for all tokens
    decay: Literal["input_dependent", "constant"] = "input_dependent"
    # no factor sqrt(1 - a^2) on the first input after a state of zero, as in the released code
    unscaled_start: bool = False
    a_range: Range = (0.9, 0.999)  # a^c at initialization, uniform: the decay with an open recurrence gate

    def channels(self, d_model: int) -> int:
        """D_RNN."""
        return self.width or d_model

    def check(self, d_model: int) -> None:
        if self.channels(d_model) % self.blocks:
            raise ValueError(f"blocks {self.blocks} must divide the recurrence's {self.channels(d_model)} channels")

    @property
    def receptive_field(self) -> int:
        return self.d_conv

    def heads(self, d_model: int) -> int:
        return self.blocks

    def state_shape(self, d_model: int) -> tuple[int, ...]:
        return (self.blocks, self.channels(d_model) // self.blocks)

    def parameters(self, d_model: int) -> int:
        D, W = d_model, self.channels(d_model)
        in_proj, out_proj = 2 * linear(D, W, bias=True), linear(W, D, bias=True)  # x and the gate
        gates = self.blocks * linear(W // self.blocks, W // self.blocks, bias=True)  # W_x and its bias, block-diagonal
        gates += gates if self.decay == "input_dependent" else W  # W_a and its bias, or only the bias
        return in_proj + short_convolution(W, self.d_conv) + gates + W + out_proj  # W: Lambda

    def input_numbers(self, d_model: int) -> int:
        return last_inputs(self.channels(d_model), self.d_conv)

    def activation_memory(self, d_model: int) -> ActivationMemory:
        # x, both gates, the decay, and their intermediate results.
        return ActivationMemory(15 * self.channels(d_model), bfloat16=0.9)
