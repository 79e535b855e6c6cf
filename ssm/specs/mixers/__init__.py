"""The systems, one file each. A new one: its spec here, its module in ssm/models/mixers/, a line in both registries."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Union

from pydantic import Field

from ssm.specs.mixers.attention import AttentionMixer
from ssm.specs.mixers.base import MixerSpecBase
from ssm.specs.mixers.deltanet import DeltaNetMixer
from ssm.specs.mixers.dss import DssMixer
from ssm.specs.mixers.gated_deltanet import GatedDeltaNetMixer
from ssm.specs.mixers.gla import GlaMixer
from ssm.specs.mixers.gru import GruMixer
from ssm.specs.mixers.h3 import H3Mixer
from ssm.specs.mixers.kda import KdaMixer
from ssm.specs.mixers.linear_attention import LinearAttentionMixer
from ssm.specs.mixers.mamba1 import Mamba1Mixer
from ssm.specs.mixers.mamba2 import Mamba2Mixer
from ssm.specs.mixers.retnet import RetNetMixer
from ssm.specs.mixers.rglru import RglruMixer
from ssm.specs.mixers.rwkv4 import Rwkv4Mixer
from ssm.specs.mixers.rwkv6 import Rwkv6Mixer
from ssm.specs.mixers.rwkv7 import Rwkv7Mixer
from ssm.specs.mixers.s4d import S4dMixer
from ssm.specs.mixers.s5 import S5Mixer
from ssm.specs.registry import check_specs

SPECS: tuple[type[MixerSpecBase], ...] = (
    Mamba2Mixer,
    LinearAttentionMixer,
    RetNetMixer,
    GlaMixer,
    Rwkv6Mixer,
    AttentionMixer,
    S4dMixer,
    DssMixer,
    S5Mixer,
    H3Mixer,
    Mamba1Mixer,
    RglruMixer,
    Rwkv4Mixer,
    GruMixer,
    DeltaNetMixer,
    GatedDeltaNetMixer,
    KdaMixer,
    Rwkv7Mixer,
)
check_specs(__name__, SPECS, modules="ssm.models.mixers")

if TYPE_CHECKING:
    MixerSpec = MixerSpecBase
else:  # a union over a tuple: the registry above is the only list
    MixerSpec = Annotated[Union[SPECS], Field(discriminator="kind")]  # noqa: UP007
