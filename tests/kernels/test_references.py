"""The oracles equal independent formulas: explicit sums, filters of scipy, functions of PyTorch and transformers.

test_exactness.py compares every other backend with the oracle.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from itertools import product

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from scipy.signal import lfilter
from ssm_kernels import causal_conv1d, diagonal_scan, gated_rms_norm, gated_scan
from ssm_kernels.testing.cases import DECAYS, Case, make
from ssm_kernels.testing.numerics import error, normal, with_gradients, worst
from torch import Tensor

from ssm.models.mixers.s5 import S5
from ssm.specs.mixers.s5 import S5Mixer

Array = np.ndarray[tuple[int, ...], np.dtype[np.float64]]


def selective_unrolled(case: Case) -> tuple[Array, Array]:
    """An explicit sum over all pairs of an input step and an output step."""
    named = {name: x.numpy() for name, x in case.tensors.items()}
    u, A, B, C = (named[name] for name in ("u", "A", "B", "C"))
    delta = named["dt"] + named.get("dt_bias", 0.0)
    delta = np.logaddexp(delta, 0.0) if case.options["dt_softplus"] else delta
    y, end = np.zeros_like(u), np.zeros_like(named["h0"])
    for t in range(u.shape[1]):
        for s in range(-1, t + 1):
            added = named["h0"] if s < 0 else (delta[:, s] * u[:, s])[..., None] * B[:, s, None]  # (B, D, N)
            reached = np.exp(delta[:, s + 1 : t + 1].sum(1)[..., None] * A) if s < t else 1.0
            y[:, t] += np.einsum("bdn,bn->bd", reached * added, C[:, t])
            if t == u.shape[1] - 1:
                end += reached * added
    y += named.get("D", 0.0) * u
    if "z" in named:
        y *= named["z"] / (1 + np.exp(-named["z"]))
    return y, end


def gated_unrolled(case: Case) -> tuple[Array, Array]:
    """An explicit sum over all pairs of steps, weighted by the product of the decays between them."""
    named = {name: x.numpy() for name, x in case.tensors.items()}
    Q, K, V, S0 = (named[name] for name in ("q", "k", "v", "h0"))
    (batch, length, heads, _), keys = V.shape, K.shape[-1]
    share, bonus = heads // K.shape[2], named.get("bonus")
    a = np.exp(named["log_decay"]) if "log_decay" in named else np.ones(heads)
    a = a[..., None] if a.ndim != 4 else a  # (H, 1), (B, T, H, 1) or (B, T, H, K)
    a = np.broadcast_to(a, (batch, length, heads, keys))
    y, end = np.zeros_like(V), np.zeros_like(S0)
    for b, h in product(range(batch), range(heads)):
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


def delta_by_transitions(case: Case) -> tuple[Array, Array]:
    """S_t = M_t S_{t-1} + k'_t v_t^T with the explicit (K, K) matrix M_t of every step."""
    named = {name: x.numpy() for name, x in case.tensors.items()}
    Q, K, V, S0 = (named[name] for name in ("q", "k", "v", "h0"))
    (batch, length, heads, _), keys = V.shape, K.shape[-1]
    share, y, end = heads // K.shape[2], np.zeros_like(V), np.zeros_like(S0)
    for b, h in product(range(batch), range(heads)):
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


def filtered(case: Case) -> tuple[Array, Array]:
    """With a constant a, the scan is a first-order filter, as in scipy."""
    a, b, h0 = (x.numpy() for x in case.tensors.values())
    h = np.empty(b.shape, np.result_type(a, b, h0))
    for i, d in product(range(b.shape[0]), range(b.shape[2])):
        h[i, :, d] = lfilter([1.0], [1.0, -a[d]], b[i, :, d], zi=[a[d] * h0[i, d]])[0]
    return h, h[:, -1]


def convolved(case: Case) -> tuple[Array, Array]:
    """PyTorch's convolution. The state is the last K - 1 inputs."""
    x, weight, state = (case.tensors[name] for name in ("x", "weight", "state"))
    everything = torch.cat([state, x], 1)  # (B, K - 1 + T, D)
    y = F.conv1d(everything.mT, weight.unsqueeze(1), case.tensors.get("bias"), groups=x.shape[2]).mT
    y = F.silu(y) if case.options["activation"] == "silu" else y
    return y.numpy(), everything[:, x.shape[1] :].numpy()


FORMULAS: dict[str, tuple[Callable[[Case], tuple[Array, Array]], tuple[int, ...]]] = {
    "selective_scan": (selective_unrolled, (0, 5, 14, 15)),
    "gated_scan": (gated_unrolled, tuple(range(24, 32))),
    "delta_scan": (delta_by_transitions, tuple(range(18, 24))),
    "diagonal_scan": (filtered, (1, 3, 5, 7)),
    "causal_conv1d": (convolved, (0, 1, 2, 3)),
}


@pytest.mark.parametrize(("operation", "variant"), [(name, n) for name, (_, of) in FORMULAS.items() for n in of])
def test_the_oracle_equals_the_formula(operation: str, variant: int) -> None:
    decays = ("usual",) if operation == "causal_conv1d" else DECAYS
    for decay, length in product(decays, (2, 13)):
        case = make(operation, 3, length=length, width=3, decay=decay, variant=variant)
        expected = [torch.from_numpy(value) for value in FORMULAS[operation][0](case)]
        assert worst(case.function("reference")(*case.values), expected) < 1e-13


def test_omitted_inputs_of_the_convolution_are_zeros() -> None:
    x, weight, bias, state = normal(0, (2, 6, 3), (3, 4), (3,), (2, 3, 3))
    expected = causal_conv1d(x, weight, torch.zeros_like(bias), torch.zeros_like(state), backend="reference")
    assert worst(causal_conv1d(x, weight, backend="reference"), expected) == 0


def test_a_constant_decay_equals_the_same_decay_at_every_step() -> None:
    q, k, v, log_decay = normal(1, (2, 50, 1, 4), (2, 50, 1, 4), (2, 50, 3, 5), (3,))
    inputs = [q, k, v, -log_decay.abs()]

    def run(q: Tensor, k: Tensor, v: Tensor, g: Tensor) -> tuple[Tensor, Tensor]:
        return gated_scan(q, k, v, g, backend="reference")

    spread = with_gradients(lambda q, k, v, g: run(q, k, v, g.expand(2, 50, 3)), inputs, 0)
    assert worst(with_gradients(run, inputs, 0), spread) < 1e-13


def test_the_norm_equals_rms_norm_of_torch_per_group() -> None:
    x, weight, gate = normal(1, (2, 5, 12), (12,), (2, 5, 12))
    for groups, given in ((1, None), (3, None), (3, gate)):
        gated = x if given is None else x * F.silu(given)
        parts = zip(gated.chunk(groups, -1), weight.chunk(groups), strict=True)
        expected = torch.cat([F.rms_norm(part, (12 // groups,), scale, eps=1e-3) for part, scale in parts], -1)
        got = gated_rms_norm(x, weight, given, groups=groups, eps=1e-3, backend="reference")
        assert worst([got], [expected]) < 1e-14


def test_the_norm_equals_transformers() -> None:
    """Mamba-2 of transformers applies the gate first and normalizes all channels, in float32."""
    from transformers import Mamba2Config
    from transformers.models.mamba2.modeling_mamba2 import Mamba2Mixer

    config = Mamba2Config(hidden_size=24, expand=2, num_heads=3, head_dim=16, n_groups=1, layer_norm_epsilon=1e-5)
    theirs = Mamba2Mixer(config, 0).norm
    x, weight, gate = (value.float() for value in normal(2, (3, 7, 48), (48,), (3, 7, 48)))
    with torch.no_grad():
        theirs.weight.copy_(weight)
    for backend in ("reference", "torch", "cpp"):
        assert worst([gated_rms_norm(x, weight, gate, backend=backend)], [theirs(x, gate)]) < 1e-6


@pytest.mark.parametrize("backend", ["torch", "cpp"])
def test_the_states_of_s5_are_precise_over_a_hundred_thousand_steps(backend: str) -> None:
    """With S5's initial decays in float32, in two calls. The expected states are from a loop in float64."""
    steps = 100_000
    torch.manual_seed(1)
    mixer = S5(S5Mixer(d_state=16, dt_range=(1e-4, 1e-1)), d_model=2, n_layers=1)
    with torch.no_grad():
        a, into, _ = mixer.system()  # (P / 2,), (P / 2, D)
        x = torch.randn(1, steps, 2)
        inputs = x.to(into.dtype) @ into.mT  # (1, T, P / 2)
        first, middle = diagonal_scan(a, inputs[:, : steps // 2], backend=backend)
        second, last = diagonal_scan(a, inputs[:, steps // 2 :], middle, backend=backend)
    assert 1 / (1 - abs(a.numpy()).max()) > 10_000  # memory of the slowest state in steps
    poles, driven = (value.numpy().astype(np.complex128) for value in (a, inputs[0].mT))
    loop = np.stack([lfilter([1.0], [1.0, -pole], row) for pole, row in zip(poles, driven, strict=True)])
    got = [torch.cat([first, second], 1)[0], last[0]]
    assert worst(got, [torch.from_numpy(loop.T), torch.from_numpy(loop[:, -1])]) < 1e-5


@pytest.mark.parametrize("wrong", [math.nan, math.inf])
def test_errors_of_values_that_are_not_finite_are_infinite(wrong: float) -> None:
    good, bad = torch.ones(3), torch.tensor([1.0, wrong, 1.0])
    assert error(bad, good) == error(good, bad) == math.inf
    for place in range(3):
        got = [good] * 3
        got[place] = bad
        assert worst(got, [good] * 3) == math.inf
