"""Call compiled scans with a matrix state (B, H, K, V), in float32 or float64."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor

from ssm_kernels.dtypes import cast, upcast_inputs
from ssm_kernels.native import load
from ssm_kernels.native.call import SUFFIXES, addresses, check, dense

SIZES = ctypes.c_int64 * 8  # B, T, G, H, K, V, kind of decay, threads


class MatrixScan(NamedTuple):
    """The functions `<name>_forward_<dtype>` and `<name>_backward_<dtype>` of a source file.

    Both take the operation's inputs and SIZES. Then forward takes y, the final state and `saved`. Backward takes
    `saved`, dy, the gradient of the final state, and a gradient for every input but resets, the last input.
    """

    name: str
    kinds: dict[int, int]  # axes of log_decay -> Decay of the source's problem.h; 0 for none

    @property
    def source(self) -> str:
        """Path of the source, for `native.load`."""
        return f"{self.name}/{self.name}.cpp"

    def forward(self, inputs: Any, saved_shape: tuple[int, ...] | None) -> tuple[Tensor, Tensor, Tensor]:
        """y in v's dtype, and the final state and `saved` in the compute dtype.

        Args:
            inputs: the operation's Inputs.
            saved_shape: shape of `saved`; None: nothing is saved, and `saved` is empty.
        """
        (B, _, H, V), K = inputs.v.shape, inputs.k.shape[3]
        ready = _prepared(inputs)
        y, state = ready.v.new_empty(inputs.v.shape), ready.v.new_empty(B, H, K, V)
        saved = ready.v.new_empty(0 if saved_shape is None else saved_shape)
        self._call("forward", ready, [y, state, None if saved_shape is None else saved])
        return cast(y, inputs.v.dtype), state, saved

    def backward(self, dy: Tensor, dstate: Tensor | None, saved: Tensor, inputs: Any) -> Sequence[Tensor | None]:
        """A gradient for every input but resets, in the compute dtype."""
        ready = _prepared(inputs)
        dtype = ready.v.dtype
        gradients = [None if x is None else torch.empty_like(x) for x in ready[:-1]]
        given = [saved.contiguous(), dense(dy, dtype), dense(dstate, dtype)]
        self._call("backward", ready, [*given, *gradients])
        return *gradients, None

    def _call(self, direction: str, inputs: Any, tensors: Sequence[Tensor | None]) -> None:
        """Call one C function. The caller keeps all tensors until it returns."""
        (B, T, H, V), (G, K) = inputs.v.shape, inputs.k.shape[2:]
        kind = 0 if inputs.log_decay is None else self.kinds[inputs.log_decay.dim()]
        sizes = SIZES(B, T, G, H, K, V, kind, torch.get_num_threads())
        function = getattr(load(self.source), f"{self.name}_{direction}_{SUFFIXES[inputs.v.dtype]}")
        if function.argtypes is None:
            function.argtypes = [ctypes.c_void_p] * (len(inputs) + 1 + len(tensors))
        check(function(*addresses(inputs), sizes, *addresses(tensors)), f"{self.name}_{direction}")


def _prepared(inputs: Any) -> Any:
    """The inputs, contiguous and in the compute dtype. Resets stay bytes."""
    return type(inputs)._make(None if x is None else x.contiguous() for x in upcast_inputs(inputs))
