"""The caches of transformers' models, and the recurrent states in them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from copy import deepcopy
from dataclasses import dataclass, replace
from types import MethodType
from typing import Any

import torch
from torch import Tensor

from ssm.base.errors import CheckpointError, first_line
from ssm.models.state import RECURRENT, State

CONV = "conv"  # the last inputs of a layer's short convolution
FLOOR = "5.17"  # of transformers, as pyproject.toml has it; its cache is this one from 5.14 on


@dataclass(frozen=True)
class ForeignState:
    """The cache of a model of transformers. The next forward pass changes it in place, so it is carried on once."""

    cache: Any
    seen: int  # tokens
    indivisible: str | None = None  # why it cannot be split by sequences, in words

    @property
    def nbytes(self) -> int:
        """Bytes of all tensors."""
        return sum(tensor.nbytes for tensor in _tensors(self.cache))

    def copy(self) -> ForeignState:
        """Tensors and all: a cache is carried on once."""
        return replace(self, cache=deepcopy(self.cache))

    def select(self, rows: Tensor) -> ForeignState:
        """A copy for these batch elements, in this order; `rows` (n,) int64.

        Raises:
            CheckpointError: a cache of this class cannot be selected from.
        """
        if self.indivisible is not None:
            raise CheckpointError(self.indivisible)
        # The copy shares tensors until they are selected from: a whole second cache may not fit. Those of one axis
        # count tokens. A forward pass adds to them in place, so they are copied.
        shared = {id(tensor): tensor for tensor in _tensors(self.cache) if tensor.dim() > 1}
        try:
            cache = deepcopy(self.cache, dict(shared))
            _select(cache, rows)
        except torch.OutOfMemoryError:
            raise
        except Exception as error:  # anything, from code that is not ours
            kind = type(self.cache).__name__
            raise CheckpointError(
                f"the cache of transformers that is a {kind} cannot be split by sequences ({first_line(error)})"
            ) from error
        return replace(self, cache=cache)

    def recurrent_states(self) -> list[Tensor]:
        """The recurrent state of every layer that has one, each (B, H, ...), until the next forward pass.

        A cache of keys and values has none.
        """
        return [memory for _, memory in self._numbered()]

    def recurrent_layers(self) -> list[int]:
        """The number of the layer of each, counted from 0 over all layers of the model."""
        return [layer for layer, _ in self._numbered()]

    def _numbered(self) -> list[tuple[int, Tensor]]:
        if hasattr(self.cache, "rnn_state"):  # xLSTM: by layer (matrix, normalizer, maximum)
            return [(layer, state[0]) for layer, state in sorted(self.cache.rnn_state.items())]
        if hasattr(self.cache, "linear_cache"):  # MiniMax: by layer, an empty list where it is attention
            return [(i, state) for i, state in enumerate(self.cache.linear_cache) if isinstance(state, Tensor)]
        found: list[tuple[int, Tensor]] = []
        for i, layer in enumerate(getattr(self.cache, "layers", [])):
            states = getattr(layer, "recurrent_states", None)
            several = states.values() if isinstance(states, dict) else [states]
            found += [(i, state) for state in several if isinstance(state, Tensor)]
        return found


def _select(cache: Any, rows: Tensor) -> None:
    """Keep these batch elements of a cache, as new tensors. `ForeignModel.check` sees whether this is right.

    transformers' `batch_select_indices` will not do. Recurrent layers lack it, and in layers that have both a state
    and keys it selects keys alone. `reorder_cache` does it for every layer of the common cache.
    """
    rows = rows.to(next(_tensors(cache)).device)
    if hasattr(cache, "rnn_state"):  # xLSTM's own cache has no method for it
        cache.rnn_state = {
            layer: tuple(state.index_select(0, rows) for state in states) for layer, states in cache.rnn_state.items()
        }
        return
    if hasattr(cache, "linear_cache"):  # MiniMax's own cache reorders keys alone
        cache.linear_cache = [
            state.index_select(0, rows) if isinstance(state, Tensor) else state for state in cache.linear_cache
        ]
    cache.reorder_cache(rows)


def is_common(cache: Any, layers: Sequence[int]) -> bool:
    """Whether a cache is transformers' common one, with one state and one convolution in each of these layers."""
    from transformers import DynamicCache

    if type(cache) is not DynamicCache:
        return False
    holders: list[Any] = [cache.layers[i] for i in layers]
    return all(
        getattr(layer, "number_of_states", None) == 1
        and isinstance(layer.recurrent_states[0], Tensor)
        and isinstance(layer.conv_states[0], Tensor)
        for layer in holders
    )


def too_old() -> str | None:
    """In words, where the common cache of this transformers is not yet the one that `begun` fills."""
    import transformers
    from transformers import cache_utils

    layer: Any = getattr(cache_utils, "LinearAttentionLayer", None)
    if layer is not None and "number_of_states" in vars(layer()):
        return None
    return f"transformers {transformers.__version__} is too old: states are given to the cache of >= {FLOOR} alone"


def keeping_tokens(cache: Any) -> tuple[int, ...]:
    """The layers, counted from 0, that keep keys and values."""
    layers = enumerate(getattr(cache, "layers", []))
    return tuple(i for i, layer in layers if isinstance(getattr(layer, "keys", None), Tensor))


def begun(config: Any, layers: Sequence[int], state: State | None) -> Any:
    """A common cache in which these layers go on from their states, and no token has been read.

    Args:
        config: of the model.
        state: an entry for each of the layers; None: zeros.
    """
    from transformers import DynamicCache

    cache: Any = DynamicCache(config=config)
    for entry, i in enumerate(layers):
        layer = cache.layers[i]
        # transformers copies every new state into the tensor of the old one, which the backward pass may need.
        layer.update_recurrent_state = MethodType(_put, layer)
        if state is not None:
            layer.update_conv_state(state.layers[entry][CONV])
            layer.update_recurrent_state(state.layers[entry][RECURRENT])
    return cache


def ended(cache: Any, layers: Sequence[int]) -> State:
    """The states of these layers of a common cache, which no longer shares them."""
    holders = [cache.layers[i] for i in layers]
    return State(
        tuple({RECURRENT: one.recurrent_states[0].clone(), CONV: one.conv_states[0].clone()} for one in holders)
    )


def _put(layer: Any, recurrent_states: Tensor, state_idx: int = 0, **_: Any) -> Tensor:
    """In place of a layer's `update_recurrent_state`: the new state is another tensor."""
    layer.recurrent_states[state_idx] = recurrent_states
    layer.is_recurrent_states_initialized[state_idx] = True
    return recurrent_states


def _tensors(cache: Any) -> Iterator[Tensor]:
    """All that a cache holds."""
    for holder in (cache, *getattr(cache, "layers", [])):
        for value in vars(holder).values():
            yield from _inside(value)


def _inside(value: Any) -> Iterator[Tensor]:
    """The tensors in lists and dictionaries."""
    if isinstance(value, Tensor):
        yield value
    elif isinstance(value, dict | list | tuple):
        for part in value.values() if isinstance(value, dict) else value:
            yield from _inside(part)
