"""The GRU's spec."""

from __future__ import annotations

from typing import ClassVar, Literal

from ssm.specs.mixers.base import MixerSpecBase, Taxonomy
from ssm.specs.part import Kept, linear


class GruMixer(MixerSpecBase):
    """The gated recurrent unit (Cho et al. 2014), in torch.nn.GRU's form: nonlinear, so no scan carries it."""

    taxonomy: ClassVar[Taxonomy] = Taxonomy(
        system="GRU",
        paper="Cho et al. 2014",
        scan="none",
        decay="gate",
        complex=False,
        recurrence="h_t = z_t h_{t-1} + (1 - z_t) n_t,  y_t = h_t,  the gate z_t and n_t functions of x_t and h_{t-1}",
    )
    kind: Literal["gru"] = "gru"

    def heads(self, d_model: int) -> int:
        return 1

    def state_shape(self, d_model: int) -> tuple[int, ...]:
        return (1, d_model)

    def parameters(self, d_model: int) -> int:
        return 2 * linear(d_model, 3 * d_model, bias=True)  # r, z, n from x_t, and from h_{t-1}

    def state_numbers(self, d_model: int, context: int) -> int:
        return self.memory_numbers(d_model)

    def kept(self, d_model: int) -> Kept:
        return Kept(7 * d_model)  # torch's own: five by step, x and y
