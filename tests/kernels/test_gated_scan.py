"""The gated scan: the unrolled sum term by term, any chunk, and its special cases."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from kernels.cases import DECAYS, PAIRS, Case, make
from kernels.chunks import check_any_chunk
from kernels.numerics import normal, with_gradients, worst
from ssm_kernels import gated_scan
from torch import Tensor

FAST = [backend for operation, backend in PAIRS if operation == "gated_scan"]

Array = np.ndarray[tuple[int, ...], np.dtype[np.float64]]


def unrolled(case: Case) -> tuple[Array, Array]:
    """Every pair of steps on its own: the decays between two are a product of the decays themselves."""
    named = {name: x.numpy() for name, x in case.tensors.items()}
    Q, K, V, S0 = (named[name] for name in ("q", "k", "v", "h0"))
    (batch, length, heads, _), keys = V.shape, K.shape[-1]
    share, bonus = heads // K.shape[2], named.get("bonus")
    a = np.exp(named["log_decay"]) if "log_decay" in named else np.ones(heads)
    a = a[..., None] if a.ndim != 4 else a  # (H, 1), (B, T, H, 1) or (B, T, H, K)
    a = np.broadcast_to(a, (batch, length, heads, keys))
    y, end = np.zeros_like(V), np.zeros_like(S0)
    for b in range(batch):
        for h in range(heads):
            for t in range(length):
                last = t + 1 if bonus is None else t  # with a bonus the state is read before its decay at t
                for s in range(t):
                    weight = Q[b, t, h // share] * K[b, s, h // share] @ np.prod(a[b, s + 1 : last, h], 0)
                    y[b, t, h] += weight * V[b, s, h]
                own = K[b, t, h // share] * (1 if bonus is None else bonus[h])
                y[b, t, h] += Q[b, t, h // share] @ own * V[b, t, h]
                y[b, t, h] += (Q[b, t, h // share] * np.prod(a[b, :last, h], 0)) @ S0[b, h]
                end[b, h] += np.outer(np.prod(a[b, t + 1 :, h], 0) * K[b, t, h // share], V[b, t, h])
            end[b, h] += np.prod(a[b, :, h], 0)[:, None] * S0[b, h]
    return y, end


@pytest.mark.parametrize("backend", ["reference", *FAST])
@pytest.mark.parametrize("variant", range(24, 32))
@pytest.mark.parametrize("decay", DECAYS)
def test_equals_the_unrolled_sum(backend: str, variant: int, decay: str) -> None:
    case = make("gated_scan", 3, length=13, width=3, decay=decay, variant=variant)
    expected = [torch.from_numpy(value) for value in unrolled(case)]
    assert worst(case.function(backend)(*case.values), expected) < 1e-13


@pytest.mark.parametrize("backend", [name for name in FAST if name != "triton"])
def test_any_chunk_gives_the_same(backend: str) -> None:
    check_any_chunk("gated_scan", backend, 100)


@pytest.mark.parametrize("backend", FAST)
def test_a_constant_is_the_same_decay_at_every_step(backend: str) -> None:
    q, k, v, log_decay = normal(1, (2, 50, 1, 4), (2, 50, 1, 4), (2, 50, 3, 5), (3,))

    def spread(q: Tensor, k: Tensor, v: Tensor, g: Tensor) -> tuple[Tensor, Tensor]:
        return gated_scan(q, k, v, g.expand(2, 50, 3), backend=backend)

    inputs = [q, k, v, -log_decay.abs()]
    got = with_gradients(lambda *x: gated_scan(*x, backend=backend), inputs, 0)
    assert worst(got, with_gradients(spread, inputs, 0)) < 1e-13


@pytest.mark.parametrize("backend", FAST)
def test_no_decay_is_linear_attention(backend: str) -> None:
    """y_t = sum_{s <= t} (q_t . k_s) v_s (Katharopoulos et al. 2020)."""
    q, k, v = normal(2, (2, 40, 3, 4), (2, 40, 3, 4), (2, 40, 3, 5))
    scores = torch.einsum("bthk,bshk->bhts", q, k).tril()
    expected = torch.einsum("bhts,bshv->bthv", scores, v), torch.einsum("bthk,bthv->bhkv", k, v)
    assert worst(gated_scan(q, k, v, backend=backend), expected) < 1e-13
