"""The delta scan: products of its transition matrices, its two forms as one, any chunk, and what the rule promises."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from kernels.cases import DECAYS, PAIRS, Case, make
from kernels.chunks import check_any_chunk
from kernels.numerics import normal, with_gradients, worst
from ssm_kernels import delta_scan, gated_scan
from torch import Tensor

FAST = [backend for operation, backend in PAIRS if operation == "delta_scan"]
each = pytest.mark.parametrize("backend", ["reference", *FAST])

Array = np.ndarray[tuple[int, ...], np.dtype[np.float64]]


def by_transitions(case: Case) -> tuple[Array, Array]:
    """S_t = M_t S_{t-1} + k'_t v_t^T with the (K, K) matrix M_t of every step written out."""
    named = {name: x.numpy() for name, x in case.tensors.items()}
    Q, K, V, S0 = (named[name] for name in ("q", "k", "v", "h0"))
    (batch, length, heads, _), keys = V.shape, K.shape[-1]
    share, y, end = heads // K.shape[2], np.zeros_like(V), np.zeros_like(S0)
    for b in range(batch):
        for h in range(heads):
            state = S0[b, h]
            for t in range(length):
                q, k = Q[b, t, h // share], K[b, t, h // share]
                decay = np.exp(named["log_decay"][b, t, h]) if "log_decay" in named else 1.0
                diagonal = np.diag(np.broadcast_to(decay, keys))
                if "beta" in named:
                    strength = named["beta"][b, t, h]
                    state = (np.eye(keys) - strength * np.outer(k, k)) @ diagonal @ state
                    k = strength * k
                else:
                    state = (diagonal + np.outer(named["b"][b, t, h], named["a"][b, t, h])) @ state
                state = state + np.outer(k, V[b, t, h])
                y[b, t, h] = q @ state
            end[b, h] = state
    return y, end


@each
@pytest.mark.parametrize("variant", range(18, 24))
@pytest.mark.parametrize("decay", DECAYS)
def test_equals_the_products_of_its_transitions(backend: str, variant: int, decay: str) -> None:
    case = make("delta_scan", 3, length=13, width=3, decay=decay, variant=variant)
    expected = [torch.from_numpy(value) for value in by_transitions(case)]
    assert worst(case.function(backend)(*case.values), expected) < 1e-13


@pytest.mark.parametrize("backend", [name for name in FAST if name != "triton"])
def test_any_chunk_gives_the_same(backend: str) -> None:
    check_any_chunk("delta_scan", backend, 40)


@pytest.mark.parametrize("backend", FAST)
@pytest.mark.parametrize("decay", ["usual", "mixed"])
def test_the_delta_rule_is_a_case_of_the_generalized_form(backend: str, decay: str) -> None:
    """a^ = a_t * k reads the decayed state, b = -beta k takes that away, and beta k is where v goes."""
    case = make("delta_scan", 4, length=70, decay=decay, variant=8, resets=0.05)

    def generalized(q: Tensor, k: Tensor, v: Tensor, beta: Tensor, g: Tensor, h0: Tensor) -> tuple[Tensor, Tensor]:
        a, b = g.exp() * k, -beta.unsqueeze(-1) * k
        return delta_scan(q, -b, v, None, g, h0, a=a, b=b, resets=case.resets, backend=backend)

    got = with_gradients(generalized, case.values, 0)
    assert worst(with_gradients(case.function(backend), case.values, 0), got) < 1e-12


def unit(seed: int, length: int = 40) -> dict[str, Any]:
    """q, k of length 1 and v of three heads."""
    q, k, v = normal(seed, (2, length, 3, 4), (2, length, 3, 4), (2, length, 3, 5))
    return {"q": q, "k": F.normalize(k, dim=-1), "v": v}


@each
def test_strength_1_stores_the_value_at_its_key(backend: str) -> None:
    """Whatever was there; 0 changes nothing, and 2 turns what is at the key around it."""
    x = unit(1)
    (h0,) = normal(2, (2, 3, 4, 5))
    ones = torch.ones(2, 40, 3, dtype=torch.float64)
    y, _ = delta_scan(x["k"], x["k"], x["v"], ones, h0=h0, backend=backend)
    assert worst([y], [x["v"]]) < 1e-14
    y, state = delta_scan(x["q"], x["k"], x["v"], 0 * ones, h0=h0, backend=backend)
    assert worst([y, state], [torch.einsum("bthk,bhkv->bthv", x["q"], h0), h0]) < 1e-14
    _, state = delta_scan(x["q"], x["k"], 0 * x["v"], 2 * ones, h0=h0, backend=backend)
    assert worst([state.norm(dim=2)], [h0.norm(dim=2)]) < 1e-14


@each
def test_keys_at_right_angles_add_up(backend: str) -> None:
    """Nothing is at a key before it comes: what is stored is that of linear attention."""
    x = unit(3, length=4)
    x["k"] = torch.eye(4, dtype=torch.float64).view(1, 4, 1, 4).expand(2, 4, 3, 4)
    (beta,) = normal(4, (2, 4, 3))
    scaled = x | {"v": beta.unsqueeze(-1) * x["v"]}
    assert worst(delta_scan(**x, beta=beta, backend=backend), gated_scan(**scaled, backend="reference")) < 1e-14


@each
@pytest.mark.parametrize("log_decay", [-math.inf, -1e30, -1e4])
@pytest.mark.parametrize("keys", [(), (4,)], ids=["head", "key"])
def test_a_decay_of_0_forgets(backend: str, log_decay: float, keys: tuple[int, ...]) -> None:
    """Every step from nothing: y = q . beta k v; with finite gradients."""
    x = unit(5)
    h0, beta = normal(6, (2, 3, 4, 5), (2, 40, 3))
    decay = torch.full((2, 40, 3, *keys), log_decay, dtype=torch.float64)
    inputs = [*x.values(), beta, decay, h0]
    y, state, *gradients = with_gradients(lambda *x: delta_scan(*x, backend=backend), inputs, 0)
    written = beta.unsqueeze(-1) * x["v"]
    expected = (x["q"] * x["k"]).sum(-1, keepdim=True) * written
    last = x["k"][:, -1].unsqueeze(-1) * written[:, -1].unsqueeze(-2)
    assert worst([y, state], [expected, last]) < 1e-14
    assert all(g.isfinite().all() for g in gradients)
    assert all(g.count_nonzero() == 0 for g in gradients[-2:])  # of the decay and h0


def test_exactly_one_form_is_given() -> None:
    x = unit(7, length=5)
    beta, a, b = normal(8, (2, 5, 3), (2, 5, 3, 4), (2, 5, 3, 4))
    for given_ in ({}, {"beta": beta, "a": a, "b": b}, {"beta": beta, "a": a}, {"b": b}):
        with pytest.raises(
            ValueError, match=r"^delta_scan: takes either beta .* or both a and b .*; got q \(2, 5, 3, 4\)"
        ):
            delta_scan(**x, **given_)
