"""The second half of a block, position by position, that stands beside the mixers of Transformers, GLA and RWKV.

One file each. A new one: its spec here, its module in ssm/models/ffn/, a line in both registries.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Union

from pydantic import Field

from ssm.specs.ffn.base import FfnSpecBase
from ssm.specs.ffn.experts import Experts
from ssm.specs.ffn.gated_mlp import GatedMlp
from ssm.specs.ffn.mlp import Mlp
from ssm.specs.ffn.rwkv_channel_mix import RwkvChannelMix
from ssm.specs.registry import check_specs

SPECS: tuple[type[FfnSpecBase], ...] = (
    Mlp,
    GatedMlp,
    RwkvChannelMix,
    Experts,
)
check_specs(__name__, SPECS, modules="ssm.models.ffn")

if TYPE_CHECKING:
    FfnSpec = FfnSpecBase
else:  # a union over a tuple: the registry above is the only list
    FfnSpec = Annotated[Union[SPECS], Field(discriminator="kind")]  # noqa: UP007
