"""What flows through the layers of a model: b_t, h_t, the mixer's output, the block's output (bn figure 5)."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

from ssm.models.backbone import Block, LanguageModel
from ssm.models.inspect.attention_map import attention_map
from ssm.models.inspect.coefficients import Coefficients, coefficients


@dataclass(frozen=True)
class LayerSignals:
    """One layer's signals over a sequence, one vector a token."""

    layer: int
    b: Tensor | None  # what enters the state (bn's Delta_t b_t), (B, T, H N P); None: no linear recurrence
    bare_b: Tensor | None  # the same without the step size (b_t), where that differs by token
    h: Tensor | None  # the state, (B, T, H N P)
    mixer: Tensor  # the mixer's output, (B, T, D)
    block: Tensor  # the residual stream behind the block, (B, T, D)


@torch.no_grad()
def layer_signals(model: LanguageModel, tokens: Tensor) -> Iterator[LayerSignals]:
    """The signals of every layer in turn, tokens (B, T) from the zero state.

    One layer at a time is held: the states of all tokens are the largest tensors there are.
    """
    x, first = model.embedded(tokens), None  # (B, T, D)
    for number, layer in enumerate(model.layers):
        assert isinstance(layer, Block)
        u = layer.norm(x)
        b = bare_b = h = None
        if layer.mixer.spec.taxonomy.diagonal:
            found = coefficients(layer.mixer, u)
            b, bare_b, h = (part.flatten(2) for part in (found.b, found.bare_b, found.states()))
        mixed, _, _ = layer.mixer.forward_with(u, None, None, first)
        x, _, first = layer(x, None, None, first)
        yield LayerSignals(number, b, bare_b, h, mixed, x)


@torch.no_grad()
def layer_coefficients(model: LanguageModel, tokens: Tensor) -> Iterator[tuple[int, Coefficients]]:
    """The number and the coefficients of every layer that is a linear recurrence, tokens (B, T) from the zero state."""
    x, first = model.embedded(tokens), None  # (B, T, D)
    for number, layer in enumerate(model.layers):
        assert isinstance(layer, Block)
        if layer.mixer.spec.taxonomy.diagonal:
            yield number, coefficients(layer.mixer, layer.norm(x))
        x, _, first = layer(x, None, None, first)


@torch.no_grad()
def layer_maps(model: LanguageModel, tokens: Tensor) -> Iterator[tuple[int, Tensor]]:
    """The number of every layer that has an attention map, and the mean of the map over heads (mi Section 2).

    Args:
        tokens: (B, T), from the zero state.

    Yields:
        maps (B, T, T).
    """
    x, first = model.embedded(tokens), None  # (B, T, D)
    for number, layer in enumerate(model.layers):
        assert isinstance(layer, Block)
        if layer.mixer.has_map:
            yield number, attention_map(layer.mixer, layer.norm(x)).mean(1)
        x, _, first = layer(x, None, None, first)
