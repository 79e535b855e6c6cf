"""Caches of transformers' models, and the recurrent states in them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from copy import deepcopy
from dataclasses import dataclass, replace
from types import MethodType
from typing import Any

from torch import Tensor

from ssm.base.errors import CheckpointError, first_line, is_lack_of_memory
from ssm.models.state import State

OLDEST_TRANSFORMERS = "5.17"  # oldest transformers, as in pyproject.toml; its cache has this interface since 5.14


@dataclass(frozen=True)
class ForeignState:
    """The cache of a model of transformers. Use it for one forward pass only, which changes it in place."""

    cache: Any
    seen: int  # tokens that were read
    indivisible: str | None = None  # why the cache cannot be split by sequences, for messages; None: it can

    @property
    def nbytes(self) -> int:
        """Bytes of all tensors."""
        return sum(tensor.nbytes for tensor in _tensors(self.cache))

    def copy(self) -> ForeignState:
        """A copy with copied tensors."""
        return replace(self, cache=deepcopy(self.cache))

    def select(self, rows: Tensor) -> ForeignState:
        """A copy with these batch elements, in this order; `rows` (n,) int64.

        Raises:
            CheckpointError: this class of cache cannot be split by sequences.
        """
        if self.indivisible is not None:
            raise CheckpointError(self.indivisible)
        # `_select` replaces all tensors of two and more axes. Until then the copy shares them, because two whole caches
        # may not fit into memory. Tensors of one axis count tokens: a forward pass changes them in place, so copy them.
        shared = {id(tensor): tensor for tensor in _tensors(self.cache) if tensor.dim() > 1}
        try:
            cache = deepcopy(self.cache, dict(shared))
            _select(cache, rows)
        except Exception as error:  # other people's code can raise anything
            if is_lack_of_memory(error):
                raise
            kind = type(self.cache).__name__
            raise CheckpointError(
                f"a cache of transformers' class {kind} cannot be split by sequences ({first_line(error)})"
            ) from error
        return replace(self, cache=cache)

    def recurrent_states(self) -> list[Tensor]:
        """The recurrent state of every layer that has one, each (B, H, ...). Valid until the next forward pass."""
        return [memory for _, memory in self._numbered()]

    def recurrent_layers(self) -> list[int]:
        """The layers of these states, counted from 0 over all layers of the model."""
        return [layer for layer, _ in self._numbered()]

    def _numbered(self) -> list[tuple[int, Tensor]]:
        if hasattr(self.cache, "rnn_state"):  # xLSTM: by layer (matrix, normalizer, maximum)
            return [(layer, state[0]) for layer, state in sorted(self.cache.rnn_state.items())]
        if hasattr(self.cache, "linear_cache"):  # MiniMax: by layer; an empty list for attention
            return [(i, state) for i, state in enumerate(self.cache.linear_cache) if isinstance(state, Tensor)]
        numbered: list[tuple[int, Tensor]] = []
        for i, layer in enumerate(getattr(self.cache, "layers", [])):
            states = getattr(layer, "recurrent_states", None)
            several = states.values() if isinstance(states, dict) else [states]
            numbered += [(i, state) for state in several if isinstance(state, Tensor)]
        return numbered


def _select(cache: Any, rows: Tensor) -> None:
    """Keep these batch elements of a cache, as new tensors. `ForeignModel.check` tests the result.

    transformers' `batch_select_indices` is not enough: recurrent layers lack it, and in layers with both a state and
    keys it selects only keys. `reorder_cache` works for every layer of the common cache.
    """
    rows = rows.to(next(_tensors(cache)).device)
    if hasattr(cache, "rnn_state"):  # xLSTM's own cache has no method for it
        cache.rnn_state = {
            layer: tuple(state.index_select(0, rows) for state in states) for layer, states in cache.rnn_state.items()
        }
        return
    if hasattr(cache, "linear_cache"):  # MiniMax's own cache reorders only keys
        cache.linear_cache = [
            state.index_select(0, rows) if isinstance(state, Tensor) else state for state in cache.linear_cache
        ]
    cache.reorder_cache(rows)


def is_common(cache: Any, layers: Sequence[int]) -> bool:
    """Whether a cache is a DynamicCache with one state and one convolution in each of these layers."""
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
    """A message if this version of transformers lacks the cache interface that `begun` needs; else None."""
    import transformers
    from transformers import cache_utils

    layer: Any = getattr(cache_utils, "LinearAttentionLayer", None)
    if layer is not None and "number_of_states" in vars(layer()):
        return None
    return (
        f"transformers {transformers.__version__} is too old to start from a state: >= {OLDEST_TRANSFORMERS} is needed"
    )


def keeping_tokens(cache: Any) -> tuple[int, ...]:
    """The layers, counted from 0, that keep keys and values."""
    layers = enumerate(getattr(cache, "layers", []))
    return tuple(i for i, layer in layers if isinstance(getattr(layer, "keys", None), Tensor))


def begun(config: Any, layers: Sequence[int], state: State | None) -> Any:
    """A DynamicCache in which these layers start from their states, and no token has been read.

    Args:
        config: transformers' config of the model.
        state: one entry for each of the layers; None: zeros.
    """
    from transformers import DynamicCache

    cache: Any = DynamicCache(config=config)
    for entry, i in enumerate(layers):
        layer = cache.layers[i]
        # transformers overwrites the tensor of the old state, which the backward pass may need.
        layer.update_recurrent_state = MethodType(_put, layer)
        if state is not None:
            layer.update_conv_state(state.layers[entry]["conv"])
            layer.update_recurrent_state(state.layers[entry]["memory"])
    return cache


def ended(cache: Any, layers: Sequence[int]) -> State:
    """Copies of the states of these layers of a DynamicCache."""
    holders = [cache.layers[i] for i in layers]
    return State(
        tuple({"memory": one.recurrent_states[0].clone(), "conv": one.conv_states[0].clone()} for one in holders)
    )


def _put(layer: Any, recurrent_states: Tensor, state_idx: int = 0, **_: Any) -> Tensor:
    """Replaces a layer's `update_recurrent_state`: keeps the new state as a new tensor."""
    layer.recurrent_states[state_idx] = recurrent_states
    layer.is_recurrent_states_initialized[state_idx] = True
    return recurrent_states


def _tensors(cache: Any) -> Iterator[Tensor]:
    """All tensors of a cache."""
    for holder in (cache, *getattr(cache, "layers", [])):
        for value in vars(holder).values():
            yield from _inside(value)


def _inside(value: Any) -> Iterator[Tensor]:
    """All tensors in nested lists, tuples and dictionaries."""
    if isinstance(value, Tensor):
        yield value
    elif isinstance(value, dict | list | tuple):
        for part in value.values() if isinstance(value, dict) else value:
            yield from _inside(part)
