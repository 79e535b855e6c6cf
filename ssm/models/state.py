"""The whole recurrent state of a model between two tokens."""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass

import torch
from torch import Tensor

SEEN = "seen"  # which tokens (B, S) of a cache (B, G, S, ...) exist
RECURRENT = "memory"  # the recurrence's own state, (B, heads, ...): what the papers call the state h_t
FFN = "ffn."  # what the names of an ffn's state begin with, beside the mixer's in its layer


@dataclass(frozen=True)
class State:
    """Per layer, named tensors whose first axis is the batch.

    In every mixer the recurrence's own state is called "memory" and has the heads on its second axis; other names
    ("conv": the last inputs of a short convolution) are inputs still needed. Norms, moments and noise speak of the
    memory alone; detaching, selecting and resetting act on all of the state. An attention's memory is its cache, which
    grows with every token, and its "seen" says which of the cached tokens exist: zeros of any length are an empty
    cache.
    """

    layers: tuple[dict[str, Tensor], ...]

    @property
    def batch_size(self) -> int:
        return self.recurrent_states()[0].shape[0]

    @property
    def nbytes(self) -> int:
        """Bytes of all tensors."""
        return sum(tensor.nbytes for layer in self.layers for tensor in layer.values())

    def recurrent_states(self) -> list[Tensor]:
        """The recurrent state of every layer, each (B, H, ...)."""
        return [layer[RECURRENT] for layer in self.layers]

    def recurrent_layers(self) -> list[int]:
        """The number of the layer of each: every layer has one."""
        return list(range(len(self.layers)))

    def copy(self) -> State:
        """To carry on from while this one is kept: itself, because no forward pass changes a state in place."""
        return self

    def map(self, function: Callable[[Tensor], Tensor]) -> State:
        """The state with `function` applied to every tensor."""
        return State(tuple({name: function(tensor) for name, tensor in layer.items()} for layer in self.layers))

    def detach(self) -> State:
        """The same values, cut from the graph."""
        return self.map(Tensor.detach)

    def to(self, device: torch.device | str) -> State:
        return self.map(lambda tensor: tensor.to(device))

    def select(self, rows: Tensor) -> State:
        """The state of these batch elements, in this order; `rows` (n,) int64."""
        return self.map(lambda tensor: tensor.index_select(0, rows.to(tensor.device)))

    def reset(self, rows: Tensor) -> State:
        """The state with the batch elements of `rows` (B,) bool set to zero, whatever they held."""
        return self.map(lambda tensor: tensor.masked_fill(_over(rows.to(tensor.device), tensor), 0.0))

    def zeros(self, batch_size: int) -> State:
        """The zero state of `batch_size` sequences, shaped as this one."""
        return self.map(lambda tensor: tensor.new_zeros(batch_size, *tensor.shape[1:]))

    def with_recurrent_states(self, recurrent_states: list[Tensor]) -> State:
        """The state with other recurrent states and all else zero."""
        zeros = self.map(torch.zeros_like)
        return State(
            tuple({**layer, RECURRENT: memory} for layer, memory in zip(zeros.layers, recurrent_states, strict=True))
        )

    def without(self, layers: Collection[int]) -> State:
        """The state in which these layers begin anew: their caches hold no token, and all else of theirs is zero."""
        if not layers:
            return self
        return State(tuple(_anew(layer) if i in layers else layer for i, layer in enumerate(self.layers)))

    def norm(self) -> Tensor:
        """The norm over all elements of the recurrent states of all layers (lg figure 4), (B,)."""
        return sum(
            (memory.float().flatten(1).square().sum(1) for memory in self.recurrent_states()), torch.zeros(())
        ).sqrt()

    def tensors(self, prefix: str = "") -> dict[str, Tensor]:
        """Flat names for a safetensors file: "<prefix><layer>.<name>"."""
        return {f"{prefix}{i}.{name}": tensor for i, layer in enumerate(self.layers) for name, tensor in layer.items()}

    @classmethod
    def from_tensors(cls, tensors: dict[str, Tensor], prefix: str = "") -> State:
        """The inverse of `tensors`; other names in the dictionary are passed over."""
        layers: dict[int, dict[str, Tensor]] = {}
        for name, tensor in tensors.items():
            if name.startswith(prefix):
                index, _, key = name.removeprefix(prefix).partition(".")
                layers.setdefault(int(index), {})[key] = tensor
        return cls(tuple(layers[i] for i in sorted(layers)))


def joined(parts: list[State]) -> State:
    """The states of a batch's parts, in order, as one."""
    if len(parts) == 1:
        return parts[0]
    return State(
        tuple(
            {name: torch.cat([part.layers[i][name] for part in parts]) for name in layer}
            for i, layer in enumerate(parts[0].layers)
        )
    )


def _anew(layer: dict[str, Tensor]) -> dict[str, Tensor]:
    zeros = {name: torch.zeros_like(tensor) for name, tensor in layer.items()}
    return zeros if SEEN not in layer else zeros | {RECURRENT: layer[RECURRENT][:, :, :0], SEEN: layer[SEEN][:, :0]}


def _over(rows: Tensor, tensor: Tensor) -> Tensor:
    """(B,) shaped to broadcast over a tensor (B, ...)."""
    return rows.view(-1, *[1] * (tensor.dim() - 1))
