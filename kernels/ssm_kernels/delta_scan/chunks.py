"""Chunks of the delta scan: one triangular system per chunk gives the writes of all tokens.

Both forms are the same recurrence with a reader r, a writer w and the written values u:

    S_t = diag(a_t) S_{t-1} + w_t u_t^T + k_t v_t^T,   u_t = r_t^T S_{t-1} + x_t,   y_t = q_t^T S_t

The delta rule has r = -beta a * k, w = k, x = beta v and no k_t v_t^T. The generalized form has r = a^, w = b and x =
0. S is the state at the start of the chunk, and f_t the decay from there to just before token t. A(r, w) are the scores
r_t . w_s for s < t, times the decays between s and t (`decays`). The u of a chunk solve

    (I - A(r, w)) u = (r * f) S + A(r, k) v + x

(Yang et al. 2024, the WY form). The code solves the system and never computes its inverse. One solve has two right
sides: r * f gives R, and the other terms give X. Then u = R S + X for any S. So the recurrence over chunks needs two
products.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from ssm_kernels.delta_scan.decays import ScalarDecay, Scores, VectorDecay


class Terms(NamedTuple):
    """Terms of the recurrence for C chunks of N sequences and heads; M = C N, with chunks first."""

    q: Tensor  # (M, L, K)
    r: Tensor  # (M, L, K)
    w: Tensor  # (M, L, K)
    v: Tensor  # (M, L, V): v of the generalized form, x of the delta rule
    k: Tensor | None  # (M, L, K): of the generalized form alone
    log_decay: Tensor  # (M, L, K or 1), finite; without a decay (1, L, 1)


class _Parts(NamedTuple):
    """Tensors of a span that forward and backward both need."""

    decay: ScalarDecay | VectorDecay
    a: Tensor  # (M, L, K or 1)
    late: Tensor  # (M, L, K): q after its own step's decay
    system: Tensor  # (M, L, L): -A(r, w), to which the diagonal is 1
    by_late: list[Tensor]  # A(q, w) and A(q, k), (M, L, L)
    by_r: list[Tensor]  # A(r, w) and A(r, k)
    reach: Tensor  # (M, L, K): R
    u: Tensor  # (M, L, V)
    entering: Tensor  # (M, K, V): the state that each chunk starts from
    state: Tensor  # (N, K, V): the state after the last


def forward(terms: Terms, state: Tensor) -> tuple[Tensor, Tensor]:
    """y (M, L, V) and the state after the last chunk, from the one before the first, (N, K, V)."""
    parts = _compute(terms, state)
    y = torch.bmm(parts.by_late[0], parts.u)  # (M, L, V)
    y.addcmul_(_dot(terms.q, terms.w), parts.u)
    y.baddbmm_(parts.late * parts.decay.from_start, parts.entering)
    if terms.k is not None:
        y.baddbmm_(parts.by_late[1], terms.v)
        y.addcmul_(_dot(terms.q, terms.k), terms.v)
    return y, parts.state


def backward(dy: Tensor, dstate: Tensor, terms: Terms, state: Tensor) -> tuple[Tensor, Terms]:
    """Gradients of the state before the first chunk and of all terms, from those of y and of the last state."""
    parts = _compute(terms, state)
    q, r, w, v, k, _ = terms
    decay, N = parts.decay, state.shape[0]
    reading, writing = parts.late * decay.from_start, w * decay.to_end  # (M, L, K)

    # Recurrence over chunks, from the last.
    du = torch.bmm(parts.by_late[0].mT, dy)  # (M, L, V): of what tokens write
    du.addcmul_(_dot(q, w), dy)
    read = torch.bmm(reading.mT, dy)  # (M, K, V)
    leaving = torch.empty_like(read)
    wholes = decay.whole.expand(read.shape[0], -1, -1)  # (M, K or 1, 1)
    for c in range(read.shape[0] - N, -1, -N):
        leaving[c : c + N] = dstate
        du[c : c + N].baddbmm_(writing[c : c + N], dstate)
        dstate = torch.addcmul(read[c : c + N], wholes[c : c + N], dstate)
        dstate.baddbmm_(parts.reach[c : c + N].mT, du[c : c + N])
    dx = _solve(parts.system.mT, du, upper=True)  # (M, L, V)

    # Gradients of what reads the state at the chunk's start, and of what writes to the state at its end.
    entering = parts.entering.mT
    dlate, dr = torch.bmm(dy, entering), torch.bmm(dx, entering)  # (M, L, K), of what is decayed from the start
    dw = torch.bmm(parts.u, leaving.mT)
    prefix = (dlate * reading).addcmul_(dr, r * decay.from_start)
    suffix = dw * writing
    whole = (leaving * parts.entering).sum(-1, keepdim=True) * wholes  # (M, K, 1)
    scores = [[torch.bmm(dx_or_dy, parts.u.mT)] for dx_or_dy in (dy, dx)]  # of A(q, w), A(r, w)
    if k is None:
        dv, dk = dx, None
    else:
        kept = k * decay.to_end
        dv = torch.bmm(parts.by_late[1].mT, dy).baddbmm_(parts.by_r[1].mT, dx).baddbmm_(kept, leaving)
        dv.addcmul_(_dot(q, k), dy)
        dk = torch.bmm(v, leaving.mT)
        suffix.addcmul_(dk, kept)
        for row, gradient in zip(scores, (dy, dx), strict=True):
            row.append(torch.bmm(gradient, v.mT))  # of A(q, k), A(r, k)
    (late_within, r_within), within, dlog = decay.backward(scores, prefix, suffix, whole)

    dlate = late_within.addcmul_(dlate, decay.from_start)
    dr = r_within.addcmul_(dr, decay.from_start)
    dw = within[0].addcmul_(dw, decay.to_end)
    dlog += (dlate * parts.late).sum_to_size(*dlate.shape[:2], dlog.shape[2])
    own = _dot(dy, parts.u)  # (M, L, 1): of q . w
    dq = (dlate * parts.a).addcmul_(own, w)
    dw.addcmul_(own, q)
    if k is not None:
        assert dk is not None
        own = _dot(dy, v)  # of q . k
        dk = within[1].addcmul_(dk, decay.to_end).addcmul_(own, q)
        dq.addcmul_(own, k)
    return dstate, Terms(dq, dr, dw, dv, dk, dlog)


def _compute(terms: Terms, state: Tensor) -> _Parts:
    """Compute the tensors from which the outputs of a span follow."""
    q, r, w, v, k, log_decay = terms
    (N, K, V), M = state.shape, q.shape[0]
    decay = (ScalarDecay if log_decay.shape[2] == 1 else VectorDecay)(log_decay)
    a = log_decay.exp()
    late = q * a
    scores: Scores = decay.scores([late, r], [w] if k is None else [w, k])
    by_late, by_r = scores
    known = v if k is None else torch.bmm(by_r[1], v)  # (M, L, V)
    system = -by_r[0]
    both = torch.cat([known, r * decay.from_start], -1)  # (M, L, V + K)
    u, reach = _solve(system, both, upper=False).split([V, K], -1)

    writing = (w * decay.to_end).mT  # (M, K, L)
    added = v.new_zeros(M, K, V) if k is None else torch.bmm((k * decay.to_end).mT, v)
    wholes = decay.whole.expand(M, -1, -1)  # (M, K or 1, 1)
    u, entering = u.contiguous(), torch.empty_like(added)
    for c in range(0, M, N):
        entering[c : c + N] = state
        u[c : c + N].baddbmm_(reach[c : c + N], state)
        state = torch.addcmul(added[c : c + N], wholes[c : c + N], state).baddbmm_(writing[c : c + N], u[c : c + N])
    return _Parts(decay, a, late, system, by_late, by_r, reach, u, entering, state)


def _solve(system: Tensor, x: Tensor, upper: bool) -> Tensor:
    """Solve (system + I) u = x for u, both (M, L, columns). The right-hand form has LAPACK's memory order."""
    return torch.linalg.solve_triangular(system.mT, x.mT, upper=not upper, left=False, unitriangular=True).mT


def _dot(x: Tensor, y: Tensor) -> Tensor:
    """Dot products of the vectors of each token, (M, L, 1)."""
    return (x * y).sum(-1, keepdim=True)
