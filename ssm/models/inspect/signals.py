"""Signals of the layers of a model: b_t, h_t, output of the mixer, output of the block (bn Figure 5)."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

from ssm.models.backbone import Block, LanguageModel
from ssm.models.inspect.attention_map import attention_map, attention_mask
from ssm.models.mixers.coefficients import Coefficients
from ssm.models.state import State


@dataclass(frozen=True)
class LayerSignals:
    """The signals of one layer: one vector for each token."""

    layer: int
    b: Tensor | None  # input of the state (bn's Delta_t b_t), (B, T, H N P); None: no linear recurrence
    bare_b: Tensor | None  # the same without a step size that depends on the token (bn's b_t)
    h: Tensor | None  # state, (B, T, H N P)
    mixer: Tensor  # output of the mixer, (B, T, D)
    block: Tensor  # residual stream after the block, (B, T, D)


@torch.no_grad()
def layer_signals(model: LanguageModel, tokens: Tensor) -> Iterator[LayerSignals]:
    """The signals of every layer in turn, tokens (B, T) from the zero state.

    They are yielded layer by layer, because the states of all tokens need much memory.
    """
    for number, layer, u, v_first, x in layer_inputs(model, tokens):
        b = bare_b = h = None
        if layer.mixer.spec.taxonomy.diagonal:
            recurrence = layer.mixer.coefficients(u)
            b, bare_b, h = (part.flatten(2) for part in (recurrence.b, recurrence.bare_b, recurrence.states()))
        mixed, _, _ = layer.mixer.forward_with_v_first(u, None, None, v_first)
        yield LayerSignals(number, b, bare_b, h, mixed, x)


@torch.no_grad()
def layer_coefficients(model: LanguageModel, tokens: Tensor) -> Iterator[tuple[int, Coefficients]]:
    """Index and coefficients of every layer with a linear recurrence, tokens (B, T) from the zero state."""
    for number, layer, u, _, _ in layer_inputs(model, tokens):
        if layer.mixer.spec.taxonomy.diagonal:
            yield number, layer.mixer.coefficients(u)


@torch.no_grad()
def layer_maps(model: LanguageModel, tokens: Tensor, mask: bool) -> Iterator[tuple[int, Tensor]]:
    """Index and attention map of every layer that has a map, as the mean over heads (mi Section 2).

    Args:
        tokens: (B, T), from the zero state.
        mask: the masks instead, of the layers that have a map and a mask.

    Yields:
        The index, and the map (B, T, T).
    """
    mapped, of_layer = model.spec.mapped(mask), attention_mask if mask else attention_map
    for number, layer, u, _, _ in layer_inputs(model, tokens):
        if number in mapped:
            yield number, of_layer(layer.mixer, u).mean(1)


def layer_inputs(
    model: LanguageModel, tokens: Tensor, state: State | None = None
) -> Iterator[tuple[int, Block, Tensor, Tensor | None, Tensor]]:
    """For every layer: its index, the block, the mixer's inputs u and `v_first`, and the block's output (B, T, D).

    `state`: the initial state; None is the zero state.
    """
    x, v_first = model.embedded(tokens), None  # (B, T, D)
    for number, layer in enumerate(model.layers):
        assert isinstance(layer, Block)
        output, _, passed_on = layer(x, None if state is None else state.layers[number], None, v_first)
        yield number, layer, layer.norm(x), v_first, output
        x, v_first = output, passed_on
