"""Scans with a matrix state (B, H, K, V) in PyTorch: one span of chunks at a time.

The gated scan and the delta scan share it. Only the states at span starts are stored for the backward pass, which
computes the rest again.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from torch import Tensor

from ssm_kernels.dtypes import compute_dtype

# Elements of a span's largest intermediate tensor: as many as fit into a cache, or as many as fill a GPU.
SPAN = {"cpu": 1 << 17}
SPAN_ELSEWHERE = 1 << 25
LONGEST_CHUNK = 128  # tokens; the matrix that sums the log decays of all pairs of them grows with its cube
# Replaces log_decay = -inf (a decay of exactly 0), so that inf * 0 never occurs. exp(-1000) is 0 in every precision.
SMALLEST_LOG_DECAY = -1000.0


class Span(NamedTuple):
    """The steps from start to stop, in chunks of Q tokens."""

    start: int
    stop: int
    Q: int

    def cut(self, x: Tensor, dtype: torch.dtype) -> Tensor:
        """The span's steps of x (B, T, ...), as (B, C, Q, ...)."""
        return x[:, self.start : self.stop].to(dtype).unflatten(1, (-1, self.Q))


def spans(k: Tensor, v: Tensor, chunk: int) -> list[Span]:
    """Divide a sequence into spans of whole chunks that fit the cache or the GPU. The rest is one short chunk.

    There are no spans if there is no sequence or no head.
    """
    (B, T, H, V), K = v.shape, k.shape[3]
    if B * H == 0:
        return []
    Q = min(chunk, LONGEST_CHUNK, T)
    size = B * H * Q * max(K, V, Q)  # of a chunk's largest tensor
    length = Q * max(1, SPAN.get(v.device.type, SPAN_ELSEWHERE) // size)
    whole = T - T % Q
    full = [Span(start, min(start + length, whole), Q) for start in range(0, whole, length)]
    return [*full, Span(whole, T, T - whole)] if whole < T else full


def saved_shape(inputs: Any, options: Any) -> tuple[int, ...]:
    """The state at the start of every span, (spans, B, H, K, V)."""
    (B, _, H, V), K = inputs.v.shape, inputs.k.shape[3]
    return len(spans(inputs.k, inputs.v, options.chunk)), B, H, K, V


def by_spans(
    inputs: Any, options: Any, save: bool, step: Callable[[Span, Tensor], tuple[Tensor, Tensor]]
) -> tuple[Tensor, Tensor, Tensor]:
    """The forward pass of a scan with a matrix state: y, the final state, and the states at span starts if `save`.

    Args:
        inputs, options: arguments of the operation, of which q, k, v, h0 and chunk are used.
        step: maps a span and its initial state (B, H, K, V) to outputs (B, steps, H, V) and the final state.
    """
    y = torch.empty(inputs.v.shape, dtype=inputs.v.dtype, device=inputs.v.device)
    (B, _, H, V), K = inputs.v.shape, inputs.k.shape[3]
    h0, dtype = inputs.h0, compute_dtype(*inputs)
    state = y.new_zeros(B, H, K, V, dtype=dtype) if h0 is None else torch.empty_like(h0, dtype=dtype).copy_(h0)
    saved = state.new_empty(saved_shape(inputs, options) if save else 0)
    for i, span in enumerate(spans(inputs.k, inputs.v, options.chunk)):
        if save:
            saved[i] = state
        y[:, span.start : span.stop], state = step(span, state)
    return y, state.contiguous(), saved
