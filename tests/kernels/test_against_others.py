"""Against implementations by others: the naive loops of flash-linear-attention, and transformers' Mamba and GDN."""

from __future__ import annotations

import importlib.util
import inspect
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from kernels.cases import PAIRS
from kernels.numerics import normal, with_gradients, worst
from ssm_kernels import causal_conv1d, delta_scan, diagonal_scan, gated_scan, selective_scan, use_backend
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


DELTA = "delta_rule/naive.py", "delta_rule_recurrence"
GATED_DELTA = "gated_delta_rule/naive.py", "naive_recurrent_gated_delta_rule"
KDA = "kda/naive.py", "naive_recurrent_kda"
DPLR = "generalized_delta_rule/dplr/naive.py", "dplr_recurrence"


def delta_rule(seed: int, decay: tuple[int, ...] = ()) -> list[Tensor]:
    """q, k of length 1, v, beta, the decay if it has a shape, and h0, in float32."""
    q, k, v, h0 = heads(seed)
    beta, *g = normal(seed + 1, (B, T, H), *([decay] if decay else []))
    return [q, F.normalize(k, dim=-1), v, beta.sigmoid().float() * 2, *(F.logsigmoid(x).float() for x in g), h0]


@of("delta_scan")
def test_delta_net(backend: str) -> None:
    naive = fla(*DELTA)

    def ours(q: Tensor, k: Tensor, v: Tensor, beta: Tensor, h0: Tensor) -> tuple[Tensor, Tensor]:
        return delta_scan(q * K**-0.5, k, v, beta, h0=h0, backend=backend)

    def theirs(q: Tensor, k: Tensor, v: Tensor, beta: Tensor, h0: Tensor) -> tuple[Tensor, Tensor]:
        y, state = naive(*(x.transpose(1, 2) for x in (q, k, v, beta)), initial_state=h0)  # (B, H, T, ...)
        return y.transpose(1, 2), state

    inputs = delta_rule(9)
    assert worst(with_gradients(ours, inputs, 0), with_gradients(theirs, inputs, 0)) < 1e-6


@of("delta_scan")
@pytest.mark.parametrize("other", ["fla", pytest.param("transformers", marks=pytest.mark.exhaustive)])  # a slow import
def test_gated_delta_net(backend: str, other: str) -> None:
    """fla's loop, and the chunks of transformers' Qwen3-Next."""
    inputs = delta_rule(11, (B, T, H))

    def ours(q: Tensor, k: Tensor, v: Tensor, beta: Tensor, g: Tensor, h0: Tensor) -> tuple[Tensor, Tensor]:
        return delta_scan(q * K**-0.5, k, v, beta, g, h0, backend=backend)

    def theirs(q: Tensor, k: Tensor, v: Tensor, beta: Tensor, g: Tensor, h0: Tensor) -> tuple[Tensor, Tensor]:
        if other == "fla":
            function = fla(*GATED_DELTA)
        else:
            from transformers.models.qwen3_next.modeling_qwen3_next import torch_chunk_gated_delta_rule

            function = inspect.unwrap(torch_chunk_gated_delta_rule)  # not what fla has in its place
        y, state = function(q, k, v, g=g, beta=beta, initial_state=h0, output_final_state=True)
        return y, state

    assert worst(with_gradients(ours, inputs, 0), with_gradients(theirs, inputs, 0)) < 2e-6


@of("delta_scan")
def test_kimi_delta_attention(backend: str) -> None:
    """With two heads to a group, as its naive loop has them."""
    naive = fla(*KDA)
    q, k, v, beta, g, h0 = delta_rule(13, (B, T, H, K))
    q, k, v, beta, g, h0 = q[:, :, :2], k[:, :, :2], *(torch.cat([x, x[:, :, :1]], 2) for x in (v, beta, g)), h0
    inputs = [q, k, v, beta, g, torch.cat([h0, h0[:, :1]], 1)]

    def ours(q: Tensor, k: Tensor, v: Tensor, beta: Tensor, g: Tensor, h0: Tensor) -> tuple[Tensor, Tensor]:
        return delta_scan(q * K**-0.5, k, v, beta, g, h0, backend=backend)

    def theirs(q: Tensor, k: Tensor, v: Tensor, beta: Tensor, g: Tensor, h0: Tensor) -> tuple[Tensor, Tensor]:
        y, state = naive(q, k, v, g, beta, initial_state=h0, output_final_state=True)
        return y, state

    assert worst(with_gradients(ours, inputs, 0), with_gradients(theirs, inputs, 0)) < 1e-6


@of("delta_scan")
def test_rwkv7(backend: str) -> None:
    """With its own a^ = -kappa_hat and b = kappa_hat * iclr, and gradients of both."""
    naive = fla(*DPLR)
    q, k, v, h0 = heads(15)
    kappa, iclr, g = (x.float() for x in normal(16, (B, T, H, K), (B, T, H, K), (B, T, H, K)))
    kappa = F.normalize(kappa, dim=-1)
    inputs = [q, k, v, -kappa, kappa * iclr.sigmoid(), -torch.exp(-0.5 - F.softplus(g)), h0]

    def ours(q: Tensor, k: Tensor, v: Tensor, a: Tensor, b: Tensor, g: Tensor, h0: Tensor) -> tuple[Tensor, Tensor]:
        return delta_scan(q * K**-0.5, k, v, log_decay=g, h0=h0, a=a, b=b, backend=backend)

    def theirs(q: Tensor, k: Tensor, v: Tensor, a: Tensor, b: Tensor, g: Tensor, h0: Tensor) -> tuple[Tensor, Tensor]:
        y, state = naive(*(x.transpose(1, 2) for x in (q, k, v, a, b, g)), initial_state=h0)  # (B, H, T, ...)
        return y.transpose(1, 2), state

    assert worst(with_gradients(ours, inputs, 0), with_gradients(theirs, inputs, 0)) < 1e-6


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
