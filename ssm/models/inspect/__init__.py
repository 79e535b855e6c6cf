"""Inspect a layer: its coefficients and states, its attention map, what it retains, and the influence of each token."""

from ssm.models.inspect.attention_map import attention_map, attention_mask
from ssm.models.inspect.influence import influence
from ssm.models.inspect.retention import retained_shares
from ssm.models.inspect.signals import LayerSignals, layer_coefficients, layer_maps, layer_signals

__all__ = [
    "LayerSignals",
    "attention_map",
    "attention_mask",
    "influence",
    "layer_coefficients",
    "layer_maps",
    "layer_signals",
    "retained_shares",
]
