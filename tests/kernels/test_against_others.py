"""Comparisons with other implementations: the naive loops of flash-linear-attention, and models of transformers."""

from __future__ import annotations

import importlib.util
import inspect
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import ssm_kernels
import torch
import torch.nn.functional as F
from kernels.cases import PAIRS
from ssm_kernels import causal_conv1d, delta_scan, diagonal_scan, selective_scan, use_backend
from ssm_kernels.testing.numerics import normal, with_gradients, worst
from torch import Tensor

B, T, H, K, V = 2, 45, 3, 8, 5


def fla(file: str, function: str) -> Callable[..., Any]:
    """Load a function from one file of fla.ops, without importing the package (which imports Triton)."""
    package = importlib.util.find_spec("fla")
    assert package is not None
    assert package.submodule_search_locations
    spec = importlib.util.spec_from_file_location("naive", Path(package.submodule_search_locations[0], "ops", file))
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return getattr(module, function)  # type: ignore[no-any-return]


def backends_of(operation: str) -> list[str]:
    return ["reference", *(name for other, name in PAIRS if other == operation)]


class Loop(NamedTuple):
    """A naive loop of fla, and its arguments by our names in its order. It scales q by K^-1/2."""

    operation: str
    file: str
    function: str
    arguments: tuple[str, ...]
    heads_first: bool = False


GATED, DELTA = ("q", "k", "v", "log_decay"), ("q", "k", "v", "beta")
DPLR = ("q", "k", "v", "a", "b", "log_decay")
LOOPS = {
    "gla": Loop("gated_scan", "gla/naive.py", "naive_recurrent_gla", GATED),
    "rwkv6": Loop("gated_scan", "rwkv6/recurrent_naive.py", "naive_recurrent_rwkv6", (*GATED, "bonus"), True),
    "retention": Loop("gated_scan", "retention/naive.py", "naive_retention", ("q", "k", "v"), True),
    "deltanet": Loop("delta_scan", "delta_rule/naive.py", "delta_rule_recurrence", DELTA, True),
    "gated deltanet": Loop(
        "delta_scan", "gated_delta_rule/naive.py", "naive_recurrent_gated_delta_rule", (*DELTA, "log_decay")
    ),
    "kda": Loop("delta_scan", "kda/naive.py", "naive_recurrent_kda", (*GATED, "beta")),
    "rwkv7": Loop("delta_scan", "generalized_delta_rule/dplr/naive.py", "dplr_recurrence", DPLR, True),
}


def inputs(name: str) -> dict[str, Tensor]:
    """Inputs in float32, the precision of fla's loops. Keys of delta rules have norm 1."""
    q, k, v, h0, g, rate = normal(1, *[(B, T, H, K)] * 2, (B, T, H, V), (B, H, K, V), *[(B, T, H, K)] * 2)
    beta, scalar, bonus = normal(2, (B, T, H), (B, T, H), (H, K))
    kappa = F.normalize(rate, dim=-1)
    found = {"q": q, "k": F.normalize(k, dim=-1) if "beta" in LOOPS[name].arguments else k, "v": v, "bonus": bonus}
    found |= {"beta": beta.sigmoid() * 2, "a": -kappa, "b": kappa * g.sigmoid(), "h0": h0}
    found["log_decay"] = F.logsigmoid(scalar if name == "gated deltanet" else g)
    if name == "rwkv7":
        found["log_decay"] = -torch.exp(-0.5 - F.softplus(g))
    if name == "kda":  # two heads per group
        found |= {n: found[n][:, :, :2] for n in ("q", "k")}
        found |= {n: torch.cat([found[n], found[n][:, :, :1]], 2) for n in ("v", "beta", "log_decay")}
        found["h0"] = torch.cat([h0, h0[:, :1]], 1)
    wanted = (*LOOPS[name].arguments, *(() if name == "retention" else ("h0",)))  # fla's retention has no state
    return {n: found[n].float() for n in wanted}


@pytest.mark.parametrize(
    ("name", "backend"), [(name, backend) for name, loop in LOOPS.items() for backend in backends_of(loop.operation)]
)
def test_scans_equal_the_loops_of_fla(name: str, backend: str) -> None:
    loop, tensors = LOOPS[name], inputs(name)
    naive = fla(loop.file, loop.function)
    known = inspect.signature(naive).parameters
    fixed = {"log_decay": torch.log1p(-(2.0 ** (-5.0 - torch.arange(H))))} if name == "retention" else {}

    def ours(*values: Tensor) -> tuple[Tensor, ...]:
        given = dict(zip(tensors, values, strict=True)) | fixed
        given["q"] = given["q"] * K**-0.5
        outputs = getattr(ssm_kernels, loop.operation)(**given, backend=backend)
        return outputs[: 1 if name == "retention" else 2]

    def theirs(*values: Tensor) -> tuple[Tensor, ...]:
        given = dict(zip(tensors, values, strict=True))
        state = {"initial_state": given.get("h0"), "output_final_state": True}
        passed = [given[n] for n in loop.arguments]
        if loop.heads_first:
            passed = [x.transpose(1, 2) if x.dim() > 2 else x for x in passed]
        found = naive(*passed, **{n: x for n, x in state.items() if n in known})
        y, *rest = found if isinstance(found, tuple) else (found,)
        return (y.transpose(1, 2) if loop.heads_first else y, *rest)

    values = list(tensors.values())
    assert worst(with_gradients(ours, values, 0), with_gradients(theirs, values, 0)) < 1e-6


@pytest.mark.exhaustive  # the import is slow
@pytest.mark.parametrize("backend", backends_of("delta_scan"))
def test_gated_delta_rule_equals_transformers(backend: str) -> None:
    from transformers.models.qwen3_next.modeling_qwen3_next import torch_chunk_gated_delta_rule

    function = inspect.unwrap(torch_chunk_gated_delta_rule)  # without fla's replacement
    values = list(inputs("gated deltanet").values())

    def ours(q: Tensor, k: Tensor, v: Tensor, beta: Tensor, g: Tensor, h0: Tensor) -> tuple[Tensor, Tensor]:
        return delta_scan(q * K**-0.5, k, v, beta, g, h0, backend=backend)

    def theirs(q: Tensor, k: Tensor, v: Tensor, beta: Tensor, g: Tensor, h0: Tensor) -> tuple[Tensor, Tensor]:
        y, state = function(q, k, v, g=g, beta=beta, initial_state=h0, output_final_state=True)
        return y, state

    assert worst(with_gradients(ours, values, 0), with_gradients(theirs, values, 0)) < 2e-6


@pytest.mark.parametrize("backend", backends_of("diagonal_scan"))
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


@pytest.mark.parametrize("backend", backends_of("selective_scan"))
def test_mamba(backend: str) -> None:
    """A whole mixer of transformers: projections, convolution, and scan with D, bias and gate."""
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
    # transformers rounds A and D to float32 for any dtype.
    assert worst(got, with_gradients(lambda x: (mixer(x),), [x], 0)) < 1e-6
