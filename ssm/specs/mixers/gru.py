"""The spec of the GRU."""

from __future__ import annotations

from typing import ClassVar, Literal

from ssm.specs.mixers.base import MixerSpecBase, Taxonomy
from ssm.specs.sublayer import ActivationMemory, linear


class GruMixer(MixerSpecBase):
    """The gated recurrent unit (Cho et al. 2014), as in torch.nn.GRU. It is nonlinear, so it has no scan."""

    taxonomy: ClassVar[Taxonomy] = Taxonomy(
        system="GRU",
        paper="Cho et al. 2014",
        scan="none",
        decay="gate",
        complex=False,
        recurrence=(
            r"$h_t = z_t h_{t-1} + (1 - z_t) n_t$",
            r"$y_t = h_t$",
            r"the gate $z_t$ and $n_t$ functions",
            r"of $x_t$ and $h_{t-1}$",
        ),
    )
    has_map: ClassVar[bool] = False  # not linear in its state
    kind: Literal["gru"] = "gru"

    def heads(self, d_model: int) -> int:
        return 1

    def state_shape(self, d_model: int) -> tuple[int, ...]:
        return (1, d_model)

    def parameters(self, d_model: int) -> int:
        return 2 * linear(d_model, 3 * d_model, bias=True)  # r, z, n from x_t and from h_{t-1}

    def activation_memory(self, d_model: int) -> ActivationMemory:
        return ActivationMemory(7 * d_model)  # five in torch's own kernel, x and y
