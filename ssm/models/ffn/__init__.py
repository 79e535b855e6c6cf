"""The second half of a block: what works on every position by itself (RWKV's looks one token back).

One file each. A new one: its spec in ssm/specs/ffn/, its module here, a line in both registries.
"""

from __future__ import annotations

from ssm.models.ffn.base import Ffn
from ssm.models.ffn.experts import ExpertsFfn
from ssm.models.ffn.gated_mlp import GatedMlpFfn
from ssm.models.ffn.mlp import MlpFfn
from ssm.models.ffn.rwkv_channel_mix import RwkvChannelMixFfn
from ssm.specs.ffn import SPECS, FfnSpec
from ssm.specs.registry import check_modules

FFNS: dict[str, type[Ffn]] = {
    "mlp": MlpFfn,
    "gated_mlp": GatedMlpFfn,
    "rwkv_channel_mix": RwkvChannelMixFfn,
    "experts": ExpertsFfn,
}
check_modules(__name__, FFNS, SPECS)


def build_ffn(spec: FfnSpec, d_model: int, n_layers: int) -> Ffn:
    """The ffn of one layer of a model of `n_layers`."""
    return FFNS[spec.kind](spec, d_model, n_layers)
