"""What flows through the layers of a model: b_t, h_t, the mixer's output, the block's output (bn figure 5)."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

from ssm.models.backbone import Block, LanguageModel
from ssm.models.inspect.coefficients import coefficients
from ssm.models.mixers.attention import Attention
from ssm.models.mixers.gru import Gru


@dataclass(frozen=True)
class LayerSignals:
    """One layer's signals over a sequence, one vector a token."""

    layer: int
    b: Tensor | None  # what enters the state (bn's Delta_t b_t), (B, T, H N P); None: no linear recurrence
    h: Tensor | None  # the state, (B, T, H N P)
    mixer: Tensor  # the mixer's output, (B, T, D)
    block: Tensor  # the residual stream behind the block, (B, T, D)


@torch.no_grad()
def layer_signals(model: LanguageModel, tokens: Tensor) -> Iterator[LayerSignals]:
    """The signals of every layer in turn, tokens (B, T) from the zero state.

    One layer at a time is held: the states of all tokens are the largest tensors there are.
    """
    x = model.embedded(tokens)  # (B, T, D)
    for number, layer in enumerate(model.layers):
        assert isinstance(layer, Block)
        u = layer.norm(x)
        b = h = None
        if not isinstance(layer.mixer, Attention | Gru):
            found = coefficients(layer.mixer, u)
            b, h = found.b.flatten(2), found.states().flatten(2)
        mixed, _ = layer.mixer(u)
        x, _ = layer(x, None, None)
        yield LayerSignals(number, b, h, mixed, x)
