"""The GRU's spec."""

from __future__ import annotations

from typing import ClassVar, Literal

from ssm.specs.mixers.base import MixerSpecBase, Taxonomy


class GruMixer(MixerSpecBase):
    """The gated recurrent unit (Cho et al. 2014), in torch.nn.GRU's form: nonlinear, so no scan carries it."""

    taxonomy: ClassVar[Taxonomy] = Taxonomy(
        system="GRU",
        paper="Cho et al. 2014",
        scan="none",
        decay="gate",
        input_dependent=True,
        complex=False,
        recurrence="h_t = z_t h_{t-1} + (1 - z_t) n_t,  y_t = h_t,  the gate z_t and n_t functions of x_t and h_{t-1}",
    )
    kind: Literal["gru"] = "gru"

    def heads(self, d_model: int) -> int:
        return 1

    def state_shape(self, d_model: int) -> tuple[int, ...]:
        return (1, d_model)
