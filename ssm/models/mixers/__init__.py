"""Mixers, one file for each. To add one, write its spec in ssm/specs/mixers/ and its module here."""

from __future__ import annotations

from ssm.models.mixers.base import MIXERS, Mixer
from ssm.specs.mixers import MixerSpec

MIXERS.discover()


def build_mixer(spec: MixerSpec, d_model: int, n_layers: int, layer: int = 0) -> Mixer:
    """The mixer for one of the `n_layers` layers of a model. `ssm.models.sublayer.Sublayer` has the interface."""
    mixer = MIXERS[spec.kind](spec, d_model, n_layers)
    mixer.initialize_at(layer)
    return mixer
