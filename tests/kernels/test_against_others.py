"""Against implementations by others: the naive loops of flash-linear-attention, and transformers' Mamba."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from kernels.cases import PAIRS
from kernels.numerics import normal, with_gradients, worst
from ssm_kernels import causal_conv1d, diagonal_scan, gated_scan, selective_scan, use_backend
from torch import Tensor

B, T, H, K, V = 2, 45, 3, 8, 5


def fla(file: str, function: str) -> Callable[..., Any]:
    """A function of one file of fla.ops, without what the package imports on the way (Triton, a GPU)."""
    package = importlib.util.find_spec("fla")
    assert package is not None
    assert package.submodule_search_locations
    spec = importlib.util.spec_from_file_location("naive", Path(package.submodule_search_locations[0], "ops", file))
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return getattr(module, function)  # type: ignore[no-any-return]


def of(operation: str) -> pytest.MarkDecorator:
    names = [name for other, name in PAIRS if other == operation]
    return pytest.mark.parametrize("backend", ["reference", *names])


def heads(seed: int) -> list[Tensor]:
    """q, k, v and h0 in float32: fla's loops compute in it."""
    return [x.float() for x in normal(seed, (B, T, H, K), (B, T, H, K), (B, T, H, V), (B, H, K, V))]


@of("gated_scan")
def test_gla(backend: str) -> None:
    q, k, v, h0 = heads(1)
    g = F.logsigmoid(normal(2, (B, T, H, K))[0]).float()
    naive = fla("gla/naive.py", "naive_recurrent_gla")

    def ours(q: Tensor, k: Tensor, v: Tensor, g: Tensor, h0: Tensor) -> tuple[Tensor, Tensor]:
        return gated_scan(q * K**-0.5, k, v, g, h0, backend=backend)

    def theirs(q: Tensor, k: Tensor, v: Tensor, g: Tensor, h0: Tensor) -> tuple[Tensor, Tensor]:
        y, state = naive(q, k, v, g, initial_state=h0, output_final_state=True)
        return y, state

    inputs = [q, k, v, g, h0]
    assert worst(with_gradients(ours, inputs, 0), with_gradients(theirs, inputs, 0)) < 1e-6


@of("gated_scan")
def test_rwkv6(backend: str) -> None:
    q, k, v, h0 = heads(3)
    g, bonus = F.logsigmoid(normal(4, (B, T, H, K))[0]).float(), normal(5, (H, K))[0].float()
    naive = fla("rwkv6/recurrent_naive.py", "naive_recurrent_rwkv6")

    def ours(q: Tensor, k: Tensor, v: Tensor, g: Tensor, u: Tensor, h0: Tensor) -> tuple[Tensor, Tensor]:
        return gated_scan(q * K**-0.5, k, v, g, h0, bonus=u, backend=backend)

    def theirs(q: Tensor, k: Tensor, v: Tensor, g: Tensor, u: Tensor, h0: Tensor) -> tuple[Tensor, Tensor]:
        q, k, v, g = (x.transpose(1, 2) for x in (q, k, v, g))  # (B, H, T, K)
        y, state = naive(q, k, v, g, u, initial_state=h0, output_final_state=True)
        return y.transpose(1, 2), state

    inputs = [q, k, v, g, bonus, h0]
    assert worst(with_gradients(ours, inputs, 0), with_gradients(theirs, inputs, 0)) < 1e-6


@of("gated_scan")
def test_retention(backend: str) -> None:
    q, k, v, _ = heads(6)
    log_decay = torch.log1p(-(2.0 ** (-5.0 - torch.arange(H))))
    naive = fla("retention/naive.py", "naive_retention")

    def ours(q: Tensor, k: Tensor, v: Tensor) -> tuple[Tensor]:
        return (gated_scan(q * K**-0.5, k, v, log_decay, backend=backend)[0],)

    def theirs(q: Tensor, k: Tensor, v: Tensor) -> tuple[Tensor]:
        return (naive(*(x.transpose(1, 2) for x in (q, k, v))).transpose(1, 2),)

    assert worst(with_gradients(ours, [q, k, v], 0), with_gradients(theirs, [q, k, v], 0)) < 1e-6


@of("diagonal_scan")
def test_hgrn(backend: str) -> None:
    x, g, h0 = (value.float() for value in normal(7, (B, T, V), (B, T, V), (B, V)))
    naive = fla("hgrn/naive.py", "naive_recurrent_hgrn")

    def ours(x: Tensor, g: Tensor, h0: Tensor) -> tuple[Tensor, Tensor]:
        return diagonal_scan(g.exp(), x, h0, backend=backend)

    def theirs(x: Tensor, g: Tensor, h0: Tensor) -> tuple[Tensor, Tensor]:
        y, state = naive(x, g, initial_state=h0, output_final_state=True)
        return y, state

    inputs = [x, F.logsigmoid(g), h0]
    assert worst(with_gradients(ours, inputs, 0), with_gradients(theirs, inputs, 0)) < 1e-6


@of("selective_scan")
def test_mamba(backend: str) -> None:
    """A whole mixer of transformers with its weights: projections, convolution, scan with D, bias and gate."""
    from transformers import MambaConfig
    from transformers.models.mamba.modeling_mamba import MambaMixer

    torch.manual_seed(0)
    mixer = MambaMixer(MambaConfig(hidden_size=16, state_size=4, conv_kernel=4, expand=2), layer_idx=0).double().eval()
    for parameter in mixer.parameters():
        torch.nn.init.normal_(parameter, std=0.5)
    R, N = mixer.time_step_rank, mixer.ssm_state_size

    def ours(x: Tensor) -> tuple[Tensor]:
        u, z = mixer.in_proj(x).chunk(2, -1)  # (B, T, D)
        u, _ = causal_conv1d(u, mixer.conv1d.weight.squeeze(1), mixer.conv1d.bias, activation="silu")
        low, b, c = mixer.x_proj(u).split([R, N, N], -1)
        dt = F.linear(low, mixer.dt_proj.weight)
        y, _ = selective_scan(u, dt, -mixer.A_log.exp(), b, c, mixer.D, mixer.dt_proj.bias, z)
        return (mixer.out_proj(y),)

    (x,) = normal(8, (B, T, 16))
    with use_backend(backend):
        got = with_gradients(ours, [x], 0)
    # It rounds A and D to float32, whatever its inputs are.
    assert worst(got, with_gradients(lambda x: (mixer(x),), [x], 0)) < 1e-6
