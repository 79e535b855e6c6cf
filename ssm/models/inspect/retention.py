"""How much of a layer's state is left after more tokens."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor

from ssm.models.backbone import LanguageModel
from ssm.models.inspect.signals import layer_inputs


@torch.no_grad()
def retained_shares(model: LanguageModel, before: Tensor, after: Tensor) -> Iterator[tuple[int, Tensor]]:
    """For every recurrent layer, the share of the state after `before` that is left after `after`.

    The mixer reads its inputs of `after` from this state, and again with an empty memory. The share is the norm of the
    difference between the final memories, divided by the norm of the memory before.

    Args:
        before, after: (B, T) tokens, one after the other.

    Yields:
        The layer (from 0), and the shares of its heads (B, H): 0 if the memory before was empty.
    """
    _, state = model.hidden(before)
    for number, layer, u, v_first, _ in layer_inputs(model, after, state):
        if number in model.spec.caches:
            continue
        given = state.layers[number]
        emptied = given | {"memory": torch.zeros_like(given["memory"])}
        ends = [layer.mixer.forward_with_v_first(u, start, None, v_first)[1] for start in (given, emptied)]
        heads = layer.mixer.spec.h_heads(model.spec.d_model)
        full, empty, started = (
            memory[:, :heads].flatten(2).double() for memory in (*(end["memory"] for end in ends), given["memory"])
        )  # (B, H, numbers of a head)
        before_norm = started.norm(dim=-1)
        yield number, torch.where(before_norm == 0, 0.0, (full - empty).norm(dim=-1) / before_norm)
