"""Feed-forward layers, one file for each. To add one, write its spec in ssm/specs/ffn/ and its module here."""

from __future__ import annotations

from ssm.models.ffn.base import FFNS, Ffn
from ssm.specs.ffn import FfnSpec

FFNS.discover()


def build_ffn(spec: FfnSpec, d_model: int, n_layers: int, layer: int = 0) -> Ffn:
    """The ffn for one of the `n_layers` layers of a model."""
    ffn = FFNS[spec.kind](spec, d_model, n_layers)
    ffn.initialize_at(layer)
    return ffn
