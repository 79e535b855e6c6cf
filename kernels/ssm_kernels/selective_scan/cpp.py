"""The selective scan in C++ (selective_scan.cpp): softplus, scan, skip connection and gate in one pass."""

from __future__ import annotations

from functools import partial

import torch
from torch import Tensor

from ssm_kernels.dtypes import cast, compute_dtype
from ssm_kernels.native import why_not_on
from ssm_kernels.native.call import call, dense, with_rows
from ssm_kernels.selective_scan.inputs import Inputs, Options

SOURCE = "selective_scan/selective_scan.cpp"
CHUNK, PADDING = 16, 16  # steps between saved states, and the multiple that channels are padded to; as in problem.h

unavailable = partial(why_not_on, SOURCE)


def saved_shape(inputs: Inputs, options: Options) -> tuple[int, ...]:
    """(B, T / CHUNK, D padded, N): the states at chunk starts. The C++ defines their order inside a chunk."""
    (batch, length, channels), N = inputs.u.shape, inputs.A.shape[1]
    return batch, -(-length // CHUNK), -(-channels // PADDING) * PADDING, N


def forward(inputs: Inputs, options: Options, save: bool) -> tuple[Tensor, Tensor, Tensor]:
    """y (B, T, D), the final state (B, D, N) and the states at chunk starts."""
    x = _prepared(inputs)
    y = x.u.new_empty(x.u.shape)
    state = x.u.new_empty(x.u.shape[0], *x.A.shape)
    saved = x.u.new_empty(saved_shape(inputs, options) if save else 0)
    call(SOURCE, "selective_scan_forward", y.dtype, *_problem(x, options), y, state, saved if save else None)
    return cast(y, inputs.u.dtype), state, saved


def backward(
    dy: Tensor, dstate: Tensor, saved: Tensor, y: Tensor | None, inputs: Inputs, options: Options
) -> tuple[Tensor | None, ...]:
    """Gradients of all inputs, in the order of the fields of Inputs."""
    x = _prepared(inputs)
    dy, dstate = with_rows(dy, x.u.dtype), dense(dstate, x.u.dtype)
    du, ddt = x.u.new_empty(x.u.shape), x.u.new_empty(x.u.shape)  # (B, T, D)
    dz = None if x.z is None else x.u.new_empty(x.u.shape)  # (B, T, D)
    dB, dC = x.u.new_empty(x.B.shape), x.u.new_empty(x.B.shape)  # (B, T, N)
    dA, dh0 = x.u.new_empty(x.A.shape), torch.empty_like(dstate)  # (D, N), (B, D, N)
    dD, dbias = x.u.new_empty(x.A.shape[:1]), x.u.new_empty(x.A.shape[:1])  # (D,)
    results = (du, ddt, dz, dB, dC, dA, dD, dbias, dh0)
    rows = (dy, dy.stride(0), dy.stride(1))
    call(SOURCE, "selective_scan_backward", dy.dtype, *_problem(x, options), *rows, dstate, saved, *results)
    return du, ddt, dA, dB, dC, dD, dbias, dz, dh0, None


def _prepared(inputs: Inputs) -> Inputs:
    """All inputs in the compute dtype. Sequences with contiguous rows are not copied; the rest is contiguous."""
    dtype = compute_dtype(*inputs)
    u, dt, B, C = (with_rows(x, dtype) for x in (inputs.u, inputs.dt, inputs.B, inputs.C))
    z = None if inputs.z is None else with_rows(inputs.z, dtype)
    resets = None if inputs.resets is None else inputs.resets.contiguous()
    D, dt_bias, h0 = (dense(x, dtype) for x in (inputs.D, inputs.dt_bias, inputs.h0))
    return Inputs(u, dt, dense(inputs.A, dtype), B, C, D, dt_bias, z, h0, resets)


def _problem(x: Inputs, options: Options) -> tuple[Tensor | int | None, ...]:
    """The arguments that describe the scan, in the order of the C++ function."""
    batch, length, channels = x.u.shape
    sequences: list[Tensor | int | None] = []
    for rows in (x.u, x.dt, x.z, x.B, x.C):
        sequences += [rows, 0, 0] if rows is None else [rows, rows.stride(0), rows.stride(1)]
    sizes = (batch, length, channels, x.A.shape[1], int(options.dt_softplus))
    return *sequences, x.A, x.D, x.dt_bias, x.h0, x.resets, *sizes
