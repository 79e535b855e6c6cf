"""The delta scan in PyTorch: chunks in parallel, a short recurrence over chunk states, and a hand-written backward.

Both forms are written as one recurrence (`chunks`), one span of chunks at a time. Only the states at span starts are
stored for the backward pass, which computes the rest again. So the additional memory hardly grows with the length.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
import torch.nn.functional as F
from torch import Tensor

from ssm_kernels.delta_scan import chunks
from ssm_kernels.delta_scan.chunks import Terms
from ssm_kernels.delta_scan.inputs import Inputs, Options
from ssm_kernels.dtypes import compute_dtype
from ssm_kernels.spans import SMALLEST_LOG_DECAY, Span, by_spans, saved_shape, spans

__all__ = ["backward", "forward", "saved_shape"]


def forward(inputs: Inputs, options: Options, save: bool) -> tuple[Tensor, Tensor, Tensor]:
    """S_t by the delta rule or in the generalized form; y_t = q_t^T S_t."""
    dtype, (B, _, H, V), K = compute_dtype(*inputs), inputs.v.shape, inputs.k.shape[3]

    def step(span: Span, state: Tensor) -> tuple[Tensor, Tensor]:
        out, last = chunks.forward(_terms(_cut(inputs, span, dtype)), state.flatten(0, 1))
        return _tokens_first(out, B, span), last.view(B, H, K, V)

    return by_spans(inputs, options, save, step)


def backward(
    dy: Tensor, dstate: Tensor, saved: Tensor, y: Tensor | None, inputs: Inputs, options: Options
) -> Sequence[Tensor | None]:
    """Gradients in the compute dtype, computed from the last span to the first."""
    dtype, parts = saved.dtype, spans(inputs.k, inputs.v, options.chunk)
    make = torch.empty if parts else torch.zeros
    gradients = {
        name: make(x.shape, dtype=dtype, device=x.device)
        for name, x in inputs._asdict().items()
        if x is not None and name not in ("h0", "resets")
    }
    B, H = inputs.v.shape[0], inputs.v.shape[2]
    dstate = dstate.to(dtype).flatten(0, 1)  # (B H, K, V)
    for i, span in reversed(list(enumerate(parts))):
        cut = _cut(inputs, span, dtype)
        terms = _terms(cut)
        dout = _chunks_first(span.cut(dy, dtype), H, terms.q.shape[1])
        dstate, dterms = chunks.backward(dout, dstate, terms, saved[i].flatten(0, 1))
        for name, x in _of_inputs(dterms, terms, cut)._asdict().items():
            if name in gradients:
                whole = gradients[name]
                x = _tokens_first(x, B, span)
                x = x.unflatten(2, (whole.shape[2], -1)).sum(3) if whole.shape[2] < H else x  # q and k by groups
                whole[:, span.start : span.stop] = x.view(B, -1, *whole.shape[2:])
    dh0 = None if inputs.h0 is None else dstate.reshape(inputs.h0.shape)
    return (*(dh0 if name == "h0" else gradients.get(name) for name in inputs._fields),)


def _cut(inputs: Inputs, span: Span, dtype: torch.dtype) -> Inputs:
    """The inputs of a span as chunks, (M, L, ...) with M = C B H. Log decays are finite and contain the resets.

    Without decay and resets, the log decays are zeros (1, L, 1).
    """
    H, log_decay = inputs.v.shape[2], inputs.log_decay
    # Vector decays are halved, which needs a power of two. Padding with zeros changes nothing.
    L = span.Q if log_decay is None or log_decay.dim() == 3 else 1 << (span.Q - 1).bit_length()

    def cut(x: Tensor | None, dtype: torch.dtype = dtype) -> Tensor | None:
        if x is None:
            return None
        x = span.cut(x, dtype)
        return _chunks_first(x if x.dim() == 5 else x.unsqueeze(-1), H, L)

    resets = None if inputs.resets is None else cut(inputs.resets.unsqueeze(-1).expand(-1, -1, H), torch.bool)
    q, k, v, beta, decays, a, b = map(cut, (*inputs[:5], inputs.a, inputs.b))
    if decays is None:
        decays = inputs.v.new_zeros(1 if resets is None else resets.shape[0], L, 1, dtype=dtype)
    if resets is not None:
        decays = decays.masked_fill(resets, SMALLEST_LOG_DECAY)
    assert q is not None
    assert k is not None
    assert v is not None
    return Inputs(q, k, v, beta, decays.clamp_min(SMALLEST_LOG_DECAY), None, a, b, resets)


def _terms(cut: Inputs) -> Terms:
    """The terms of the recurrence in `chunks`, from the inputs of a span."""
    q, k, v, beta, log_decay, _, a, b, resets = cut
    assert log_decay is not None
    if beta is not None:
        return Terms(q, -beta * log_decay.exp() * k, k, beta * v, None, log_decay)
    assert a is not None
    assert b is not None
    # The generalized form reads the state before its own decay, but after a reset.
    return Terms(q, a if resets is None else a.masked_fill(resets, 0.0), b, v, k, log_decay)


def _of_inputs(gradients: Terms, terms: Terms, cut: Inputs) -> Inputs:
    """Gradients of the inputs of a span, from the gradients of the terms."""
    q, r, w, v, k, log_decay = gradients
    _, key, value, beta, decays, *_, resets = cut
    assert decays is not None
    if beta is None:
        assert k is not None
        return Inputs(q, k, v, None, log_decay, None, r if resets is None else r.masked_fill(resets, 0.0), w, None)
    decayed = decays.exp() * r  # (M, L, K)
    dbeta = (v * value).sum(-1, keepdim=True) - (decayed * key).sum(-1, keepdim=True)
    log_decay = log_decay + (r * terms.r).sum_to_size(log_decay.shape)
    return Inputs(q, w - beta * decayed, beta * v, dbeta, log_decay, None, None, None, None)


def _chunks_first(x: Tensor, heads: int, L: int) -> Tensor:
    """(B, C, Q, H or G, K) -> (C B H, L, K), padded with zeros to L tokens."""
    x = x.repeat_interleave(heads // x.shape[3], dim=3) if x.shape[3] < heads else x
    return F.pad(x.permute(1, 0, 3, 2, 4), (0, 0, 0, L - x.shape[2])).reshape(-1, L, x.shape[4])


def _tokens_first(x: Tensor, batch: int, span: Span) -> Tensor:
    """(C B H, L, K) -> (B, C Q, H, K)."""
    chunks = (span.stop - span.start) // span.Q
    x = x.view(chunks, batch, -1, *x.shape[1:])[..., : span.Q, :]  # (C, B, H, Q, K)
    return x.permute(1, 0, 3, 2, 4).flatten(1, 2)
