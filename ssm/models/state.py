"""The state of a model between two tokens."""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass

import torch
from torch import Tensor

LayerState = dict[str, Tensor]  # named tensors of one layer, with the batch as first axis
LayerOutput = tuple[Tensor, LayerState]  # the output of a layer, and its final state

SEEN = "seen"  # (B, S) bool: which tokens of a cache (B, G, S, ...) exist
FFN = "ffn."  # prefix of the names of an ffn's state


@dataclass(frozen=True)
class State:
    """For each layer, named tensors with the batch as first axis.

    Every mixer calls its recurrent state (B, heads, ...), h_t in the papers, "memory". Other tensors are inputs that
    later tokens still need, such as "conv": the last inputs of a short convolution. Norms, moments and noise use only
    the memory. Detaching, selecting and resetting apply to all tensors.

    The memory of attention is its cache, which grows with each token. Its "seen" says which cached tokens exist, so
    zeros of any length are an empty cache.
    """

    layers: tuple[LayerState, ...]

    @property
    def batch_size(self) -> int:
        return self.recurrent_states()[0].shape[0]

    @property
    def nbytes(self) -> int:
        """Bytes of all tensors."""
        return sum(tensor.nbytes for layer in self.layers for tensor in layer.values())

    def recurrent_states(self) -> list[Tensor]:
        """The recurrent state of every layer, each (B, H, ...)."""
        return [layer["memory"] for layer in self.layers]

    def recurrent_layers(self) -> list[int]:
        """The layers of these states: all layers."""
        return list(range(len(self.layers)))

    def copy(self) -> State:
        """Returns self: forward passes never change a state in place."""
        return self

    def map(self, function: Callable[[Tensor], Tensor]) -> State:
        """The state with `function` applied to every tensor."""
        return State(tuple({name: function(tensor) for name, tensor in layer.items()} for layer in self.layers))

    def detach(self) -> State:
        """The same values without gradients."""
        return self.map(Tensor.detach)

    def to(self, device: torch.device | str) -> State:
        return self.map(lambda tensor: tensor.to(device))

    def select(self, rows: Tensor) -> State:
        """The states of these batch elements, in this order; `rows` (n,) int64."""
        return self.map(lambda tensor: tensor.index_select(0, rows.to(tensor.device)))

    def reset(self, rows: Tensor) -> State:
        """The state with the batch elements where `rows` (B,) is True set to zero, even if they are not finite."""
        return self.map(lambda tensor: tensor.masked_fill(_over(rows.to(tensor.device), tensor), 0.0))

    def zeros(self, batch_size: int) -> State:
        """The zero state of `batch_size` sequences, with the other sizes of this state."""
        return self.map(lambda tensor: tensor.new_zeros(batch_size, *tensor.shape[1:]))

    def with_recurrent_states(self, recurrent_states: list[Tensor]) -> State:
        """A state with these recurrent states. All other tensors are zero."""
        zeros = self.map(torch.zeros_like)
        return State(
            tuple({**layer, "memory": memory} for layer, memory in zip(zeros.layers, recurrent_states, strict=True))
        )

    def without(self, layers: Collection[int]) -> State:
        """The state with these layers reset: caches are empty, and other tensors are zero."""
        if not layers:
            return self
        return State(tuple(_anew(layer) if i in layers else layer for i, layer in enumerate(self.layers)))

    def norm(self) -> Tensor:
        """The norm (B,) over the recurrent states of all layers (lg Figure 4)."""
        return sum(
            (memory.float().flatten(1).square().sum(1) for memory in self.recurrent_states()), torch.zeros(())
        ).sqrt()

    def tensors(self, prefix: str = "") -> dict[str, Tensor]:
        """The tensors under flat names for a safetensors file: "<prefix><layer>.<name>"."""
        return {f"{prefix}{i}.{name}": tensor for i, layer in enumerate(self.layers) for name, tensor in layer.items()}

    @classmethod
    def from_tensors(cls, tensors: dict[str, Tensor], prefix: str = "") -> State:
        """The inverse of `tensors`. Names without the prefix are ignored."""
        layers: dict[int, dict[str, Tensor]] = {}
        for name, tensor in tensors.items():
            if name.startswith(prefix):
                index, _, key = name.removeprefix(prefix).partition(".")
                layers.setdefault(int(index), {})[key] = tensor
        return cls(tuple(layers[i] for i in sorted(layers)))


def joined(parts: list[State]) -> State:
    """The states of the parts of a batch, concatenated in order."""
    if len(parts) == 1:
        return parts[0]
    return State(
        tuple(
            {name: torch.cat([part.layers[i][name] for part in parts]) for name in layer}
            for i, layer in enumerate(parts[0].layers)
        )
    )


def _anew(layer: LayerState) -> LayerState:
    zeros = {name: torch.zeros_like(tensor) for name, tensor in layer.items()}
    return zeros if SEEN not in layer else zeros | {"memory": layer["memory"][:, :, :0], SEEN: layer[SEEN][:, :0]}


def _over(rows: Tensor, tensor: Tensor) -> Tensor:
    """(B,) reshaped to broadcast over a tensor (B, ...)."""
    return rows.view(-1, *[1] * (tensor.dim() - 1))
