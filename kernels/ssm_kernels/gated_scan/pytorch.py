"""The gated scan in PyTorch: chunks in parallel, a short recurrence over chunk states, and a hand-written backward.

The form of the decay selects the code for a chunk: `scalar_decay` (no decay, constant, or per head) or `vector_decay`
(per key, or with a bonus). Both work on one span of chunks at a time. Only the states at span starts are stored for the
backward pass, which computes the rest again. So the additional memory hardly grows with the length.
"""

from __future__ import annotations

from collections.abc import Sequence
from types import ModuleType

import torch
from torch import Tensor

from ssm_kernels.dtypes import compute_dtype
from ssm_kernels.gated_scan import scalar_decay, vector_decay
from ssm_kernels.gated_scan.inputs import Inputs, Options
from ssm_kernels.spans import SMALLEST_LOG_DECAY, Span, by_spans, saved_shape, spans

__all__ = ["backward", "forward", "saved_shape"]


def forward(inputs: Inputs, options: Options, save: bool) -> tuple[Tensor, Tensor, Tensor]:
    """S_t = diag(a_t) S_{t-1} + k_t v_t^T; y_t reads S_t, or S_{t-1} and the bonus."""
    dtype, form = compute_dtype(*inputs), _form(inputs)

    def step(span: Span, state: Tensor) -> tuple[Tensor, Tensor]:
        q, k, v = (span.cut(x, dtype) for x in (inputs.q, inputs.k, inputs.v))  # (B, C, Q, G, K) or (B, C, Q, H, V)
        out, state = form.forward(q, k, v, _log_decay(inputs, span, dtype), state, *_more(inputs, span, dtype))
        return out.flatten(1, 2), state

    return by_spans(inputs, options, save, step)


def backward(
    dy: Tensor, dstate: Tensor, saved: Tensor, y: Tensor | None, inputs: Inputs, options: Options
) -> Sequence[Tensor | None]:
    """Gradients in the compute dtype, computed from the last span to the first."""
    dtype, form = saved.dtype, _form(inputs)
    parts = spans(inputs.k, inputs.v, options.chunk)
    make = torch.empty if parts else torch.zeros
    dq, dk, dv = (make(x.shape, dtype=dtype, device=x.device) for x in (inputs.q, inputs.k, inputs.v))
    dlog, dbonus = (None if x is None else dq.new_zeros(x.shape) for x in (inputs.log_decay, inputs.bonus))
    dstate = dstate.to(dtype)
    for i, span in reversed(list(enumerate(parts))):
        q, k, v, dout = (span.cut(x, dtype) for x in (inputs.q, inputs.k, inputs.v, dy))
        decays, more = _log_decay(inputs, span, dtype), _more(inputs, span, dtype)
        dstate, dlog_part, dbonus_part, *rest = form.backward(dout, dstate, q, k, v, decays, saved[i], *more)
        for whole, part in zip((dq, dk, dv), rest, strict=True):
            whole[:, span.start : span.stop] = part.flatten(1, 2)
        if dlog is not None:
            _put_decay_gradient(dlog, dlog_part, span)
        if dbonus is not None:
            dbonus += dbonus_part
    return dq, dk, dv, dlog, None if inputs.h0 is None else dstate.contiguous(), dbonus, None


def _form(inputs: Inputs) -> ModuleType:
    vector = inputs.bonus is not None or (inputs.log_decay is not None and inputs.log_decay.dim() == 4)
    return vector_decay if vector else scalar_decay


def _more(inputs: Inputs, span: Span, dtype: torch.dtype) -> tuple[Tensor | None, ...]:
    """Arguments for `vector_decay` only: the bonus (H, K), and the resets (B, C, Q), which come before the reading."""
    if _form(inputs) is scalar_decay:
        return ()
    resets = None if inputs.resets is None else span.cut(inputs.resets, torch.bool)
    return None if inputs.bonus is None else inputs.bonus.to(dtype), resets


def _log_decay(inputs: Inputs, span: Span, dtype: torch.dtype) -> Tensor:
    """Finite log decays: (B, C, Q, H, K) for vectors, else (B, C, Q, H). For a constant, B and C are 1."""
    log_decay, resets = inputs.log_decay, inputs.resets
    H, K = inputs.v.shape[2], inputs.k.shape[3]
    if log_decay is not None and log_decay.dim() > 1:
        decays = span.cut(log_decay, dtype)
    else:
        constant = inputs.v.new_zeros(H, dtype=dtype) if log_decay is None else log_decay.to(dtype)
        decays = constant.expand(1, 1, span.Q, H)
    if resets is not None:
        forget = span.cut(resets, torch.bool)  # (B, C, Q)
        forget = forget.view(*forget.shape, *(1,) * (decays.dim() - 3))
        decays = decays.masked_fill(forget, SMALLEST_LOG_DECAY)
    decays = decays.clamp_min(SMALLEST_LOG_DECAY)
    if _form(inputs) is vector_decay and decays.dim() == 4:
        chunks = (span.stop - span.start) // span.Q
        decays = decays.unsqueeze(-1).expand(inputs.v.shape[0], chunks, span.Q, H, K)
    return decays


def _put_decay_gradient(dlog: Tensor, part: Tensor, span: Span) -> None:
    """Write the gradient of a span's log decays, shaped as in `_log_decay`, to its place. It is 0 at resets."""
    if dlog.dim() < 4 and part.dim() == 5:
        part = part.sum(-1)  # one decay for all keys
    if dlog.dim() == 1:
        dlog += part.sum((0, 1, 2))
    else:
        dlog[:, span.start : span.stop] = part.flatten(1, 2)
