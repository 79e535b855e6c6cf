"""The mixers, one file per system. A new one: its spec in ssm/specs/model.py, its file here, a line in MIXERS."""

from __future__ import annotations

from torch import nn

from ssm.models.mixers.mamba2 import Mamba2
from ssm.specs.model import MixerSpec

MIXERS: dict[str, type[nn.Module]] = {"mamba2": Mamba2}


def build_mixer(spec: MixerSpec, d_model: int, n_layers: int) -> nn.Module:
    """The mixer of one layer of a model of `n_layers`.

    A mixer maps (x (B, T, D), state | None, resets (B, T) bool | None) to (y (B, T, D), state), where the state is a
    dictionary of tensors with the batch first, None is the zero state, and a reset forgets all that came before.
    """
    return MIXERS[spec.kind](spec, d_model, n_layers)
