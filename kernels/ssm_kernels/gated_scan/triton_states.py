# mypy: disable-error-code="no-untyped-def"
"""Triton kernels for the state before every chunk, and in reverse for the gradient of the state after every chunk."""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
import triton
import triton.language as tl
from torch import Tensor

from ssm_kernels.dtypes import compute_dtype
from ssm_kernels.gated_scan.inputs import Inputs
from ssm_kernels.native.triton_launch import FLOAT32, HALF, HALF_STATE, launch, plain, real_dtype, rows, segments, tile
from ssm_kernels.native.triton_tiles import carry, load_rows, product

# A decay of exactly 0 becomes this, so that no inf - inf appears; exp(-200) is 0 in float32, `decay_of` in float64.
LOWEST = tl.constexpr(-200.0)
VANISHED = tl.constexpr(-199.0)  # a lower sum of log decays contains a decay of 0


class Problem(NamedTuple):
    """The arguments of a gated scan for its kernels."""

    q: Tensor
    k: Tensor
    v: Tensor
    log_decay: Tensor | None
    bonus: Tensor | None
    resets: Tensor | None
    strides: tuple[int, int, int]  # of the time axis of q, k and v
    sizes: tuple[int, int, int, int, int]  # T, H, G, K, V
    batch: int
    dtype: torch.dtype  # of all computations
    decay: str  # none, constant (H,), head (B, T, H) or key (B, T, H, K)
    chunk: int
    precision: str

    @property
    def chunks(self) -> int:
        """The number of chunks."""
        return triton.cdiv(self.sizes[0], self.chunk)

    @property
    def constants(self) -> dict[str, Any]:
        """Compile-time constants of all kernels."""
        return {
            "DECAY": self.decay,
            "C": self.chunk,
            "PRECISION": self.precision,
            "COMPUTE": real_dtype(self.dtype),
        }


def problem(inputs: Inputs) -> Problem:
    """Choose the precision of matrix products from the inputs, and a chunk length that fits into registers.

    Chunks have 64 tokens for half-precision inputs, 32 for float32 and float64, and fewer for short sequences.
    """
    q, k, v, log_decay, _, bonus, resets = inputs
    (batch, T, H, V), (G, K) = v.shape, k.shape[2:]
    dtype = compute_dtype(*inputs)
    half = all(x.element_size() == 2 for x in (q, k, v))
    # Triton chooses the layout of a product's operand by the narrowest number that it is computed from. Triton 3.6
    # cannot compile a float64 product if that is a byte. In float32, resets as bytes need fewer registers.
    if resets is not None and dtype == torch.float64:
        resets = resets.to(torch.int32)
    precision = "ieee" if dtype == torch.float64 else HALF if half else FLOAT32
    (q, q_row), (k, k_row), (v, v_row) = rows(q), rows(k), rows(v)
    decay = "none" if log_decay is None else {1: "constant", 3: "head", 4: "key"}[log_decay.dim()]
    return Problem(
        q, k, v, plain(log_decay), plain(bonus), plain(resets), (q_row, k_row, v_row), (T, H, G, K, V), batch, dtype,
        decay, tile(T, 64 if half else 32), precision,
    )  # fmt: skip


def by_group(parts: Tensor, groups: int) -> Tensor:
    """Sum parts (B, T, parts, K), which are in the order of heads, within groups."""
    B, T, count, K = parts.shape
    return parts if count == groups else parts.view(B, T, groups, count // groups, K).sum(3)


@triton.jit
def decay_of(log_decay):
    """exp of a sum of log decays. It is exactly 0 if the sum contains a decay of 0. NaN stays NaN."""
    if log_decay.dtype == tl.float64:
        return tl.where(log_decay <= VANISHED, 0.0, tl.exp(log_decay))
    else:
        return tl.exp(log_decay)


@triton.jit
def forgotten(resets, b, t, inside, T, COMPUTE: tl.constexpr):
    """LOWEST at resets, 0 elsewhere, with the shape of t."""
    if resets is None:
        return tl.zeros(t.shape, COMPUTE)
    else:
        reset = tl.load(resets + b.to(tl.int64) * T + t, inside, 0) != 0
        return tl.where(reset, LOWEST, 0.0).to(COMPUTE)


@triton.jit
def limited(log_decay):
    """Log decays of at least LOWEST. NaN stays NaN, so a diverged decay does not look like a reset."""
    return tl.maximum(log_decay, LOWEST, tl.PropagateNan.ALL)


@triton.jit
def head_decay(log_decay, resets, b, h, t, inside, T, H, DECAY: tl.constexpr, COMPUTE: tl.constexpr):
    """Log decays of one head at steps t; 0 (no decay) outside of the mask `inside`."""
    g = tl.zeros(t.shape, COMPUTE)
    if DECAY == "constant":
        g += tl.load(log_decay + h).to(COMPUTE)
    if DECAY == "head":
        g += tl.load(log_decay + (b.to(tl.int64) * T + t) * H + h, inside, 0.0).to(COMPUTE)
    reset = forgotten(resets, b, t, inside, T, COMPUTE)
    return tl.where(reset < 0.0, reset, limited(tl.where(inside, g, 0.0)))


@triton.jit
def key_decay(log_decay, resets, b, h, t, k, inside, T, H, K, COMPUTE: tl.constexpr):
    """Log decays at steps t and keys k, which are broadcast; 0 outside of the mask `inside`."""
    at = ((b.to(tl.int64) * T + t) * H + h) * K + k
    g = limited(tl.load(log_decay + at, inside, 0.0).to(COMPUTE))
    if resets is not None:
        reset = tl.load(resets + b.to(tl.int64) * T + t + 0 * k, inside, 0) != 0
        g = tl.where(reset, LOWEST, g)
    return g


@triton.jit
def decay_from_start(
    log_decay, resets, b, h, t, i, k, k_in, T, H, K, EXCLUSIVE: tl.constexpr, COMPUTE: tl.constexpr
):  # fmt: skip
    """(C, BK) log decay from the start of a chunk, or of a block, to each query: its i-th token, at step t.

    If EXCLUSIVE, without the query's own step.
    """
    t_in = t < T
    if EXCLUSIVE:
        inside = (t_in & (i > 0))[:, None] & k_in[None, :]
        g = key_decay(log_decay, resets, b, h, t[:, None] - 1, k[None, :], inside, T, H, K, COMPUTE)
        return tl.cumsum(g, 0) + forgotten(resets, b, t, t_in, T, COMPUTE)[:, None]
    else:
        inside = t_in[:, None] & k_in[None, :]
        return tl.cumsum(key_decay(log_decay, resets, b, h, t[:, None], k[None, :], inside, T, H, K, COMPUTE), 0)


@triton.jit
def decay_to_end(log_decay, resets, b, h, t, i, k, k_in, T, H, K, LENGTH: tl.constexpr, COMPUTE: tl.constexpr):
    """(LENGTH, BK) log decay from each key, at step t, to the end of its chunk or block: the key is its i-th token."""
    inside = ((i < LENGTH - 1) & (t + 1 < T))[:, None] & k_in[None, :]
    g = key_decay(log_decay, resets, b, h, t[:, None] + 1, k[None, :], inside, T, H, K, COMPUTE)
    return tl.cumsum(g, 0, reverse=True)


@triton.jit
def states_kernel(
    x, w, log_decay, resets, start, states, last, total, x_row, w_row, T, H, G, K, V, batch_heads, chunks, each,
    DECAY: tl.constexpr, EXCLUSIVE: tl.constexpr, REVERSE: tl.constexpr, C: tl.constexpr, BK: tl.constexpr,
    BV: tl.constexpr, PRECISION: tl.constexpr, COMPUTE: tl.constexpr,
):  # fmt: skip
    """state = decay * state + sum_t weight_t x_t w_t^T, chunk by chunk, in tiles (BK, BV).

    Forward, x and w are k and v, and the weight is the decay from t to the chunk's end. In reverse, they are q and dy,
    and the weight is the decay from the chunk's start to t (if EXCLUSIVE, without t's own decay).

    Writes either `states` before each chunk (NC, BH, K, V) and `last` (BH, K, V), or, for every segment, `last`
    (S, BH, K, V) and `total`, the decay over it, (S, BH) or (S, BH, K).
    """
    tiles_v = tl.cdiv(V, BV)
    tiles_k = tl.cdiv(K, BK)
    pid = tl.program_id(0)
    segment = tl.program_id(1).to(tl.int64)
    tile_k = pid // tiles_v % tiles_k
    bh = pid // (tiles_v * tiles_k)
    b, h = bh // H, bh % H
    group = h // (H // G)
    k = tile_k * BK + tl.arange(0, BK)
    v = pid % tiles_v * BV + tl.arange(0, BV)
    k_in, v_in = k < K, v < V
    tile_in = k_in[:, None] & v_in[None, :]
    at = k[:, None] * V + v[None, :]  # offset in one state (K, V)
    i = tl.arange(0, C)
    first = tl.program_id(1) * each
    count = tl.minimum(chunks - first, each)

    state = tl.zeros([BK, BV], COMPUTE)
    if start is not None:
        state += tl.load(start + (segment * batch_heads + bh) * K * V + at, tile_in, 0.0)
    through = tl.zeros([BK], COMPUTE)  # log decay so far
    for n in range(count):
        c = first + count - 1 - n if REVERSE else first + n
        if states is not None:
            tl.store(states + (c.to(tl.int64) * batch_heads + bh) * K * V + at, state, tile_in)
        t = c * C + i
        t_in = t < T
        row = b.to(tl.int64) * T + t
        x_t = tl.load(x + row[None, :] * x_row + group * K + k[:, None], k_in[:, None] & t_in[None, :], 0.0)  # (BK, C)
        w_t = load_rows(w, row, w_row, h * V, v, t_in, v_in)  # (C, BV)
        if DECAY == "key":
            g_in = k_in[:, None] & t_in[None, :]
            g = key_decay(log_decay, resets, b, h, t[None, :], k[:, None], g_in, T, H, K, COMPUTE)  # (BK, C)
            if not REVERSE:
                later = g_in & (i < C - 1)[None, :] & (t + 1 < T)[None, :]
                g_next = key_decay(log_decay, resets, b, h, t[None, :] + 1, k[:, None], later, T, H, K, COMPUTE)
                weight = tl.cumsum(g_next, 1, reverse=True)
            elif EXCLUSIVE:
                earlier = g_in & (i > 0)[None, :]
                g_past = key_decay(log_decay, resets, b, h, t[None, :] - 1, k[:, None], earlier, T, H, K, COMPUTE)
                weight = tl.cumsum(g_past, 1) + forgotten(resets, b, t, t_in, T, COMPUTE)[None, :]
            else:
                weight = tl.cumsum(g, 1)
            x_w = x_t.to(COMPUTE) * decay_of(weight)
            whole = tl.sum(g, 1)  # (BK,)
            through += whole
            state = product(x_w, w_t, state * decay_of(whole)[:, None], PRECISION)
        else:
            g = head_decay(log_decay, resets, b, h, t, t_in, T, H, DECAY, COMPUTE)  # (C,)
            if not REVERSE:
                later = (i < C - 1) & (t + 1 < T)
                weight = tl.cumsum(
                    head_decay(log_decay, resets, b, h, t + 1, later, T, H, DECAY, COMPUTE), 0, reverse=True
                )
            elif EXCLUSIVE:
                earlier = t_in & (i > 0)
                weight = tl.cumsum(head_decay(log_decay, resets, b, h, t - 1, earlier, T, H, DECAY, COMPUTE), 0)
                weight += forgotten(resets, b, t, t_in, T, COMPUTE)
            else:
                weight = tl.cumsum(g, 0)
            whole = tl.sum(g, 0)
            through += whole
            w_w = w_t.to(COMPUTE) * decay_of(weight)[:, None]
            state = product(x_t, w_w, state * decay_of(whole), PRECISION)

    if total is not None:
        tl.store(last + (segment * batch_heads + bh) * K * V + at, state, tile_in)
        if DECAY == "key":
            tl.store(total + (segment * batch_heads + bh) * K + k, decay_of(through), k_in)
        else:
            tl.store(total + segment * batch_heads + bh + 0 * k, decay_of(through), k == 0)
    else:
        end = 0 if REVERSE else tl.num_programs(1) - 1
        if segment == end:
            tl.store(last + bh.to(tl.int64) * K * V + at, state, tile_in)


def pass_states(p: Problem, x: Tensor, w: Tensor, start: Tensor | None, reverse: bool) -> tuple[Tensor, Tensor]:
    """The states before all chunks, (NC, B, H, K, V), and the last state, (B, H, K, V).

    If there are few programs, a long sequence is split into parallel segments, which run twice. The first run computes
    each segment's effect on a state. The second run starts from the state before the segment.

    Args:
        x, w: k and v; in reverse q and the gradient of y.
        start: h0; in reverse the gradient of the final state.
    """
    T, H, _, K, V = p.sizes
    BK, BV = tile(K, 64), tile(V, 64)
    programs = p.batch * H * triton.cdiv(K, BK) * triton.cdiv(V, BV)
    count, each = segments(programs, T, p.chunk)
    (x, x_row), (w, w_row) = rows(x), rows(w)
    state = (p.batch, H, K, V)
    constants: dict[str, Any] = {
        **p.constants,
        "EXCLUSIVE": p.bonus is not None,
        "REVERSE": reverse,
        "BK": BK,
        "BV": BV,
    }
    constants["PRECISION"] = HALF_STATE if p.precision == HALF else p.precision
    shape = (x_row, w_row, *p.sizes, p.batch * H, p.chunks, each)
    constants["num_warps"] = 8 if p.decay == "key" else 4  # the (C, BK) weights need registers
    start = None if start is None else start.to(p.dtype).contiguous()
    if count > 1:
        local = x.new_empty((count, *state), dtype=p.dtype)
        total = x.new_empty((count, *state[:3]) if p.decay == "key" else (count, *state[:2]), dtype=p.dtype)
        launch(
            states_kernel, (programs, count), x, w, p.log_decay, p.resets, None, None, local, total, *shape, **constants
        )  # fmt: skip
        start = carry(total, local, start, reverse)
    states = x.new_empty((p.chunks, *state), dtype=p.dtype)
    last = x.new_empty(state, dtype=p.dtype)
    launch(
        states_kernel, (programs, count), x, w, p.log_decay, p.resets, start, states, last, None, *shape, **constants
    )
    return states, last
