"""Inspect a layer: coefficients of its recurrence, states, attention map, and the influence of each token."""

from ssm.models.inspect.attention_map import attention_map, attention_mask
from ssm.models.inspect.coefficients import Coefficients, coefficients
from ssm.models.inspect.influence import influence
from ssm.models.inspect.signals import LayerSignals, layer_coefficients, layer_maps, layer_signals

__all__ = [
    "Coefficients",
    "LayerSignals",
    "attention_map",
    "attention_mask",
    "coefficients",
    "influence",
    "layer_coefficients",
    "layer_maps",
    "layer_signals",
]
