"""The gated scan in C++: hand-written forward and backward, vectorised, threaded over sequences and groups of heads."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence

import torch
from torch import Tensor

from ssm_kernels.gated_scan.inputs import Inputs, Options
from ssm_kernels.native import load, why_not
from ssm_kernels.native.call import SUFFIXES, address, check
from ssm_kernels.operators import widened

SOURCE = "gated_scan/gated_scan.cpp"
CHUNK = 32  # tokens between the states that are kept for the backward pass; CHUNK of problem.h
KINDS = {1: 1, 3: 2, 4: 3}  # axes of log_decay -> Decay of problem.h; 0 for none
SIZES = ctypes.c_int64 * 8  # of the problem, as its functions read them
ZERO_DSTATE_IS_NONE = True


def unavailable(device: torch.device) -> str | None:
    """It needs the CPU and a C++ compiler."""
    return why_not(SOURCE) if device.type == "cpu" else f"it runs on the CPU, not on {device.type}"


def saved_shape(inputs: Inputs, options: Options) -> tuple[int, ...]:
    """The states that chunks start from, but for the zeros of a first one without h0: (B, H, kept, K, V)."""
    B, T, H, V = inputs.v.shape
    return B, H, -(-T // CHUNK) - (inputs.h0 is None), inputs.k.shape[3], V


def forward(inputs: Inputs, options: Options, save: bool) -> tuple[Tensor, Tensor, Tensor]:
    """y, the final state, and the states that are kept for the backward pass."""
    (B, T, H, V), K = inputs.v.shape, inputs.k.shape[3]
    ready = _prepared(inputs)
    y, state = ready.v.new_empty(B, T, H, V), ready.v.new_empty(B, H, K, V)
    saved = ready.v.new_empty(saved_shape(inputs, options) if save else 0)
    _call("forward", ready, [y, state, saved if save else None])
    return y.to(inputs.v.dtype), state, saved


def backward(
    dy: Tensor, dstate: Tensor | None, saved: Tensor, y: Tensor | None, inputs: Inputs, options: Options
) -> Sequence[Tensor | None]:
    """Gradients of q, k, v, log_decay, h0 and bonus, in the compute dtype."""
    ready = _prepared(inputs)
    dtype = ready.v.dtype
    gradients = [None if x is None else torch.empty_like(x) for x in ready[:6]]
    dstate = None if dstate is None else dstate.to(dtype).contiguous()
    given = [saved.contiguous(), dy.to(dtype).contiguous(), dstate]
    _call("backward", ready, [*given, *gradients])
    return *gradients, None


def _prepared(inputs: Inputs) -> Inputs:
    """Contiguous and in the compute dtype, as the C functions read them; resets stay bytes."""
    return Inputs._make(None if x is None else x.detach().contiguous() for x in widened(inputs))


def _call(name: str, inputs: Inputs, tensors: Sequence[Tensor | None]) -> None:
    """One C function; the caller holds all tensors until it returns."""
    (B, T, H, V), (G, K) = inputs.v.shape, inputs.k.shape[2:]
    kind = 0 if inputs.log_decay is None else KINDS[inputs.log_decay.dim()]
    sizes = SIZES(B, T, G, H, K, V, kind, torch.get_num_threads())
    function = getattr(load(SOURCE), f"gated_scan_{name}_{SUFFIXES[inputs.v.dtype]}")
    if function.argtypes is None:
        function.argtypes = [ctypes.c_void_p] * (len(inputs) + 1 + len(tensors))
    check(function(*map(address, inputs), sizes, *map(address, tensors)), f"gated_scan_{name}")
