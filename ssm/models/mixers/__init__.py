"""The mixers, one file per system. A new one: its spec in ssm/specs/mixers/, and its module here."""

from __future__ import annotations

from ssm.models.mixers.base import MIXERS, Mixer
from ssm.specs.mixers import MixerSpec

MIXERS.discover()


def build_mixer(spec: MixerSpec, d_model: int, n_layers: int) -> Mixer:
    """The mixer of one layer of a model of `n_layers`.

    A mixer maps (x (B, T, D), state | None, resets (B, T) bool | None) to (y (B, T, D), state), where the state is a
    dictionary of tensors with the batch first, None is the zero state, and a reset forgets all that came before.
    """
    return MIXERS[spec.kind](spec, d_model, n_layers)
