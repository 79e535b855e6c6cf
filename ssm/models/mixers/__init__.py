"""The mixers, one file per system. A new one: its spec in ssm/specs/mixers/, its module here, a line in both lists."""

from __future__ import annotations

from ssm.models.mixers.attention import Attention
from ssm.models.mixers.base import Mixer
from ssm.models.mixers.deltanet import DeltaNet
from ssm.models.mixers.dss import Dss
from ssm.models.mixers.gated_deltanet import GatedDeltaNet
from ssm.models.mixers.gla import Gla
from ssm.models.mixers.gru import Gru
from ssm.models.mixers.h3 import H3
from ssm.models.mixers.kda import Kda
from ssm.models.mixers.linear_attention import LinearAttention
from ssm.models.mixers.mamba1 import Mamba1
from ssm.models.mixers.mamba2 import Mamba2
from ssm.models.mixers.retnet import RetNet
from ssm.models.mixers.rglru import Rglru
from ssm.models.mixers.rwkv4 import Rwkv4
from ssm.models.mixers.rwkv6 import Rwkv6
from ssm.models.mixers.rwkv7 import Rwkv7
from ssm.models.mixers.s4d import S4d
from ssm.models.mixers.s5 import S5
from ssm.specs.mixers import SPECS, MixerSpec
from ssm.specs.registry import check_modules

MIXERS: dict[str, type[Mixer]] = {
    "mamba2": Mamba2,
    "linear_attention": LinearAttention,
    "retnet": RetNet,
    "gla": Gla,
    "rwkv6": Rwkv6,
    "attention": Attention,
    "s4d": S4d,
    "dss": Dss,
    "s5": S5,
    "h3": H3,
    "mamba1": Mamba1,
    "rglru": Rglru,
    "rwkv4": Rwkv4,
    "gru": Gru,
    "deltanet": DeltaNet,
    "gated_deltanet": GatedDeltaNet,
    "kda": Kda,
    "rwkv7": Rwkv7,
}
check_modules(__name__, MIXERS, SPECS)


def build_mixer(spec: MixerSpec, d_model: int, n_layers: int) -> Mixer:
    """The mixer of one layer of a model of `n_layers`.

    A mixer maps (x (B, T, D), state | None, resets (B, T) bool | None) to (y (B, T, D), state), where the state is a
    dictionary of tensors with the batch first, None is the zero state, and a reset forgets all that came before.
    """
    return MIXERS[spec.kind](spec, d_model, n_layers)
