"""The selective scan in PyTorch: states of a few steps at a time, and a hand-written backward pass.

Only the states at chunk starts are stored for the backward pass, which computes the other states again. Buffers of
states are (steps, B, N, D), so that each step is contiguous in memory.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from ssm_kernels.dtypes import compute_dtype
from ssm_kernels.selective_scan.inputs import Inputs, Options

CHUNK = 16  # steps
ROW = {"cpu": 1 << 15}  # elements of states that are processed together on a CPU, to stay in the cache
# A = -inf is a decay of exactly 0 even if delta is 0: exp(1e-35 * -3e38) is 0, and 1e-35 * A is 0 for any usual A.
SMALLEST_A, SMALLEST_DELTA = -3e38, 1e-35


class _Chunk(NamedTuple):
    """Inputs of a chunk of l steps, with time as the first axis, in the compute dtype."""

    u: Tensor  # (l, B, D)
    raw: Tensor  # (l, B, D): dt + dt_bias
    delta: Tensor  # (l, B, D)
    B: Tensor  # (l, B, N)
    C: Tensor  # (l, B, N)
    z: Tensor | None  # (l, B, D)
    resets: Tensor | None  # (l, B)


def saved_shape(inputs: Inputs, options: Options) -> tuple[int, ...]:
    """The state at the start of every chunk, (T / CHUNK, B, N, D)."""
    batch, length, channels = inputs.u.shape
    return (length + CHUNK - 1) // CHUNK, batch, inputs.A.shape[1], channels


def forward(inputs: Inputs, options: Options, save: bool) -> tuple[Tensor, Tensor, Tensor]:
    """h_t = exp(delta_t A) h_{t-1} + delta_t B_t u_t and y_t = (C_t . h_t + D u_t) silu(z_t)."""
    dtype = compute_dtype(*inputs)
    batch, _, channels = inputs.u.shape
    N = inputs.A.shape[1]
    y = torch.empty(inputs.u.shape, dtype=inputs.u.dtype, device=inputs.u.device)
    state = torch.empty(batch, channels, N, dtype=dtype, device=y.device)
    saved = state.new_empty(saved_shape(inputs, options) if save else 0)
    At = _transposed(inputs.A, dtype)  # (N, D)
    skip = None if inputs.D is None else inputs.D.to(dtype)  # (D,)
    for rows in _blocks(inputs):
        h = _initial(inputs, rows, dtype)  # (B, N, D)
        buffers = state.new_empty(2, CHUNK, *h.shape)
        for c, steps in enumerate(_chunks(inputs)):
            if save:
                saved[c, rows] = h
            chunk = _read(inputs, options, rows, steps, dtype)
            _, states = _states(chunk, At, h, buffers)  # (l, B, N, D)
            out = _readout(chunk, states, skip)  # (l, B, D)
            out = out if chunk.z is None else out * F.silu(chunk.z)
            y[rows, steps] = out.transpose(0, 1)
            h = states[-1].clone()
        state[rows] = h.transpose(1, 2)
    return y, state, saved


def backward(
    dy: Tensor, dstate: Tensor, saved: Tensor, y: Tensor | None, inputs: Inputs, options: Options
) -> Sequence[Tensor | None]:
    """Gradients in the compute dtype, computed from the last chunk to the first."""
    dtype, device = saved.dtype, saved.device
    u, N = inputs.u, inputs.A.shape[1]
    du, ddt = (torch.empty(u.shape, dtype=dtype, device=device) for _ in range(2))  # (B, T, D)
    dz = None if inputs.z is None else torch.empty_like(du)  # (B, T, D)
    dB, dC = (du.new_empty(*u.shape[:2], N) for _ in range(2))  # (B, T, N)
    dh0 = None if inputs.h0 is None else du.new_empty(inputs.h0.shape)  # (B, D, N)
    At = _transposed(inputs.A, dtype)  # (N, D)
    dAt = torch.zeros_like(At)
    skip = None if inputs.D is None else inputs.D.to(dtype)  # (D,)
    dD, dbias = du.new_zeros(u.shape[2]), du.new_zeros(u.shape[2])
    for rows in _blocks(inputs):
        dh = dstate[rows].to(dtype).transpose(1, 2).contiguous()  # (B, N, D)
        buffers = du.new_empty(4, CHUNK, *dh.shape)
        for c, steps in reversed(list(enumerate(_chunks(inputs)))):
            chunk = _read(inputs, options, rows, steps, dtype)
            before = saved[c, rows]  # (B, N, D)
            decays, states = _states(chunk, At, before, buffers)  # (l, B, N, D)
            count, width = chunk.u.shape[:2]  # l, B

            dout = dy[rows, steps].transpose(0, 1).to(dtype)  # (l, B, D)
            if chunk.z is not None and dz is not None:
                gradient = torch.ops.aten.silu_backward(dout * _readout(chunk, states, skip), chunk.z)  # (l, B, D)
                dz[rows, steps] = gradient.transpose(0, 1)
                dout = dout * F.silu(chunk.z)
            dout = dout.contiguous()

            # g_t = C_t dy_t + decay_{t+1} g_{t+1}, and the gradient of decay_t's exponent, decay_t g_t h_{t-1}
            g, dlog = buffers[2, :count], buffers[3, :count]  # (l, B, N, D)
            torch.mul(dout.unsqueeze(2), chunk.C.unsqueeze(3), out=g)
            back = (x[::-1] for x in (g.unbind(0), decays.unbind(0), dlog.unbind(0), _each_reset(chunk)))
            for g_t, decay_t, through_t, reset_t in zip(*back, strict=True):
                g_t += dh
                dh = torch.mul(g_t, decay_t, out=through_t)
                dh = dh if reset_t is None else dh.masked_fill_(reset_t, 0.0)
            dh = dh.clone()
            dlog[1:] *= states[:-1]
            dlog[0] *= before
            if chunk.resets is not None:
                dlog.masked_fill_(chunk.resets[..., None, None], 0.0)

            added = chunk.delta * chunk.u  # (l, B, D)
            flat = g.view(count * width, N, -1)
            dadded = torch.bmm(chunk.B.reshape(count * width, 1, N), flat).view_as(added)  # (l, B, D)
            dC_t = torch.bmm(states.view(count * width, N, -1), dout.view(count * width, -1, 1)).view(count, width, N)
            dB_t = torch.bmm(flat, added.reshape(count * width, -1, 1)).view(count, width, N)
            dB[rows, steps], dC[rows, steps] = dB_t.transpose(0, 1), dC_t.transpose(0, 1)
            ddelta = torch.mul(dlog, At, out=g).sum(2).addcmul_(dadded, chunk.u)  # (l, B, D)
            dAt += dlog.mul_(chunk.delta.unsqueeze(2)).sum((0, 1))

            draw = ddelta * chunk.raw.sigmoid() if options.dt_softplus else ddelta  # (l, B, D)
            dinput = dadded * chunk.delta
            if skip is not None:
                dinput.addcmul_(dout, skip)
                dD += (dout * chunk.u).sum((0, 1))
            dbias += draw.sum((0, 1))
            du[rows, steps], ddt[rows, steps] = dinput.transpose(0, 1), draw.transpose(0, 1)
        if dh0 is not None:
            dh0[rows] = dh.transpose(1, 2)
    return du, ddt, dAt.t().contiguous(), dB, dC, dD, dbias, dz, dh0, None


def _blocks(inputs: Inputs) -> Iterator[slice]:
    """Rows of the batch that are processed together."""
    batch = inputs.u.shape[0]
    row = ROW.get(inputs.u.device.type)
    size = max(1, batch if row is None else min(batch, row // max(1, inputs.A.numel())))
    return (slice(start, min(start + size, batch)) for start in range(0, batch, size))


def _chunks(inputs: Inputs) -> Iterator[slice]:
    """Steps that are processed together."""
    length = inputs.u.shape[1]
    return (slice(start, min(start + CHUNK, length)) for start in range(0, length, CHUNK))


def _transposed(A: Tensor, dtype: torch.dtype) -> Tensor:
    """A as (N, D), without infinities."""
    return A.to(dtype).t().clamp(min=SMALLEST_A).contiguous()


def _initial(inputs: Inputs, rows: slice, dtype: torch.dtype) -> Tensor:
    """The state before the first step, (B, N, D)."""
    if inputs.h0 is None:
        return inputs.u.new_zeros(rows.stop - rows.start, *inputs.A.shape[::-1], dtype=dtype)
    return inputs.h0[rows].to(dtype).transpose(1, 2).contiguous()


def _read(inputs: Inputs, options: Options, rows: slice, steps: slice, dtype: torch.dtype) -> _Chunk:
    """The inputs of some steps of some rows."""
    u, raw, B, C = (x[rows, steps].transpose(0, 1).to(dtype) for x in (inputs.u, inputs.dt, inputs.B, inputs.C))
    raw = raw if inputs.dt_bias is None else raw + inputs.dt_bias.to(dtype)
    delta = F.softplus(raw, threshold=50.0) if options.dt_softplus else raw
    z = None if inputs.z is None else inputs.z[rows, steps].transpose(0, 1).to(dtype)
    resets = None if inputs.resets is None else inputs.resets[rows, steps].t()
    return _Chunk(u, raw, delta, B, C, z, resets)


def _states(chunk: _Chunk, At: Tensor, before: Tensor, buffers: Tensor) -> tuple[Tensor, Tensor]:
    """The decays and the states of a chunk, both (l, B, N, D), in the first two buffers."""
    steps = chunk.u.shape[0]
    decays, states = buffers[0, :steps], buffers[1, :steps]
    torch.mul(chunk.delta.clamp(min=SMALLEST_DELTA).unsqueeze(2), At, out=decays).exp_()
    torch.mul((chunk.delta * chunk.u).unsqueeze(2), chunk.B.unsqueeze(3), out=states)
    for decay_t, state_t, reset_t in zip(decays.unbind(0), states.unbind(0), _each_reset(chunk), strict=True):
        before = before if reset_t is None else before.masked_fill(reset_t, 0.0)
        before = state_t.addcmul_(decay_t, before)
    return decays, states


def _each_reset(chunk: _Chunk) -> Sequence[Tensor | None]:
    """For each of l steps: where it resets the state, (B, 1, 1), or None."""
    return (None,) * len(chunk.u) if chunk.resets is None else chunk.resets[..., None, None].unbind(0)


def _readout(chunk: _Chunk, states: Tensor, skip: Tensor | None) -> Tensor:
    """C_t . h_t + D u_t, (l, B, D)."""
    steps, batch, N, channels = states.shape
    out = torch.bmm(chunk.C.reshape(steps * batch, 1, N), states.view(steps * batch, N, channels))
    out = out.view(steps, batch, channels)
    return out if skip is None else out.addcmul_(chunk.u, skip)
