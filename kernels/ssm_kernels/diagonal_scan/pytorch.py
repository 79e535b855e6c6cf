"""The diagonal scan in PyTorch: one multiply-add per step, in place, on several segments of time in parallel."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from ssm_kernels.diagonal_scan.inputs import Inputs, Options, gradient_like
from ssm_kernels.dtypes import compute_dtype

# Elements per torch operation that make its overhead small. Narrower inputs are cut into segments of time.
ROW = {"cpu": 16_384}
ROW_ELSEWHERE = 1 << 18


def forward(inputs: Inputs, options: Options, save: bool) -> tuple[Tensor, Tensor, Tensor]:
    """h_t = a_t * h_{t-1} + b_t."""
    a, b, h0, resets = inputs
    dtype = compute_dtype(*inputs)
    h = torch.empty(b.shape, dtype=dtype, device=b.device).copy_(b)  # (B, T, D)
    start = h.new_zeros(h[:, 0].shape) if h0 is None else h0.to(dtype)  # (B, D)
    _scan_in_place(h, a.to(dtype), resets, start, reverse=False)
    return h, h[:, -1].clone(), h.new_empty(0)


def backward(
    dy: Tensor, dstate: Tensor, saved: Tensor, y: Tensor | None, inputs: Inputs, options: Options
) -> Sequence[Tensor | None]:
    """The same scan from the end: g_t = dh_t + conj(a_{t+1}) g_{t+1}."""
    a, b, h0, resets = inputs
    assert y is not None  # the Operator keeps the output
    constant = a.dim() == 1
    conj = a.to(y.dtype).conj_physical()  # (B, T, D) or (D,)

    g = torch.empty_like(y).copy_(dy)  # (B, T, D)
    g[:, -1] += dstate
    later = None if resets is None else resets[:, 1:]  # (B, T - 1)
    _scan_in_place(g[:, :-1], conj if constant else conj[:, 1:], later, g[:, -1], reverse=True)

    da = torch.empty_like(y)  # (B, T, D): g_t conj(h_{t-1})
    torch.mul(g[:, 1:], y[:, :-1].conj_physical(), out=da[:, 1:])
    if h0 is None:
        da[:, 0] = 0
    else:
        torch.mul(g[:, 0], h0.to(y.dtype).conj_physical(), out=da[:, 0])
    if resets is not None:
        da.masked_fill_(resets.unsqueeze(-1), 0)
    da = da.sum((0, 1)) if constant else da

    dh0 = None
    if h0 is not None:
        dh0 = g[:, 0] * (conj if constant else conj[:, 0])  # (B, D)
        if resets is not None:
            dh0.masked_fill_(resets[:, :1], 0)
        dh0 = gradient_like(dh0, h0)
    return gradient_like(da, a), gradient_like(g, b), dh0, None


def _scan_in_place(x: Tensor, a: Tensor, resets: Tensor | None, start: Tensor, reverse: bool) -> None:
    """x_t += a_t * x_{t-1}, from `start` before the first step; in reverse the first step is the last.

    x is (B, T, D), a (B, T, D) or (D,), resets (B, T), start (B, D). Few and wide steps are cheaper than many narrow
    ones. So S segments of T / S steps are computed in parallel, twice. The first pass starts every segment from zero.
    It gives each segment's final state and total decay, and so all initial states. The second pass starts from these.
    """
    B, T, D = x.shape
    segments = min(max(1, ROW.get(x.device.type, ROW_ELSEWHERE) // (B * D)), T // 16)
    segments = segments if segments >= 6 else 1  # three passes instead of one
    length = T // segments
    whole = segments * length
    parts = ((slice(0, whole), segments), (slice(whole, T), 1))  # the second is what is left over
    for part, count in reversed(parts) if reverse else parts:
        if part.start < part.stop:
            decays = a[:, part] if a.dim() == 3 else a
            forget = None if resets is None else resets[:, part]
            start = _segments_in_place(x[:, part], decays, forget, start, count, reverse)


def _segments_in_place(
    x: Tensor, a: Tensor, resets: Tensor | None, start: Tensor, segments: int, reverse: bool
) -> Tensor:
    """`_scan_in_place` with the time cut into equal segments; returns the last state (B, D)."""
    B, T, D = x.shape
    length = T // segments
    xs = x.unflatten(1, (segments, length)).unbind(2)  # T / S of (B, S, D)
    decays = a.unflatten(1, (segments, length)).unbind(2) if a.dim() == 3 else (a,) * length
    forget = None if resets is None else resets.unflatten(1, (segments, length)).unsqueeze(-1).unbind(2)  # (B, S, 1)
    order = range(length - 1, -1, -1) if reverse else range(length)

    entering = start.unsqueeze(1)  # (B, S, D): the state before each segment
    if segments > 1:
        added, through = x.new_zeros(B, segments, D), x.new_ones(B, segments, D)
        for t in order:
            if forget is not None:  # masked, not multiplied by 0: a reset forgets infinities too
                added = added.masked_fill(forget[t], 0)
                through.masked_fill_(forget[t], 0)
            added = torch.addcmul(xs[t], decays[t], added)
            through *= decays[t]
        forgets = None if resets is None else resets.unflatten(1, (segments, length)).any(2, keepdim=True)  # (B, S, 1)
        state, before = start, []
        for s in range(segments - 1, -1, -1) if reverse else range(segments):
            before.append(state)
            state = state if forgets is None else state.masked_fill(forgets[:, s], 0)
            state = torch.addcmul(added[:, s], through[:, s], state)
        entering = torch.stack(before[::-1] if reverse else before, 1)

    state = entering
    for t in order:
        state = state if forget is None else state.masked_fill(forget[t], 0)
        state = xs[t].addcmul_(decays[t], state)
    return state[:, 0 if reverse else -1]
