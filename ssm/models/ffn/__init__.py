"""The second half of a block: what works on every position by itself (RWKV's looks one token back).

One file each. A new one: its spec in ssm/specs/ffn/, and its module here.
"""

from __future__ import annotations

from ssm.models.ffn.base import FFNS, Ffn
from ssm.specs.ffn import FfnSpec

FFNS.discover()


def build_ffn(spec: FfnSpec, d_model: int, n_layers: int) -> Ffn:
    """The ffn of one layer of a model of `n_layers`."""
    return FFNS[spec.kind](spec, d_model, n_layers)
