"""The adapters pass our arguments to the right places of the peers': against the peers' own plain forms."""

from __future__ import annotations

import inspect
import sys
import warnings
from collections.abc import Callable
from importlib import import_module
from types import ModuleType
from typing import Any

import pytest
import ssm_kernels
import torch
import torch.nn.functional as F
from kernels.cases import Case, make
from kernels.numerics import error, normal, worst
from ssm_kernels.adapters import PEERS, fla, mamba_ssm, peer
from torch import Tensor

CPU, CUDA = torch.device("cpu"), torch.device("cuda")


def fla_function(path: str) -> Any:
    """A function of fla, which is installed for the tests."""
    module, name = path.rsplit(".", 1)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return getattr(import_module(f"fla.ops.{module}"), name)


def stand_in(monkeypatch: pytest.MonkeyPatch, path: str, plain: Callable[..., tuple[Tensor, Tensor]]) -> list[str]:
    """Puts `plain`, a function of the kernel's arguments by name, in the kernel's place; lists the calls."""
    real, calls = fla_function(path), []

    def call(*args: Any, **kwargs: Any) -> tuple[Tensor, Tensor]:
        calls.append(path)
        return plain(**inspect.signature(real).bind(*args, **kwargs).arguments)

    module, name = path.rsplit(".", 1)
    monkeypatch.setattr(import_module(f"fla.ops.{module}"), name, call)
    return calls


def gated(decay: str, bonus: bool = False, seed: int = 0) -> tuple[dict[str, Tensor], list[Tensor]]:
    """Inputs of a gated scan in float32, 4 heads over 2 groups, and what the oracle says."""
    B, T, H, G, K, V = 2, 9, 4, 2, 3, 5
    q, k, v, h0, u, a = normal(seed, *[(B, T, G, K)] * 2, (B, T, H, V), (B, H, K, V), (H, K), (B, T, H, K))
    tensors = {"q": q, "k": k, "v": v, "h0": h0}
    shapes = {"constant": a[0, 0, :, 0], "scalar": a[..., 0], "vector": a}
    if decay in shapes:
        tensors["log_decay"] = F.logsigmoid(shapes[decay])
    if bonus:
        tensors["bonus"] = u
    tensors = {n: x.float() for n, x in tensors.items()}
    return tensors, list(ssm_kernels.gated_scan(**tensors, backend="reference"))


def test_fla_linear_attention(monkeypatch: pytest.MonkeyPatch) -> None:
    tensors, expected = gated("none")
    naive = fla_function("linear_attn.naive.naive_recurrent_linear_attn")
    calls = stand_in(monkeypatch, "linear_attn.chunk_linear_attn", naive)
    assert worst(fla.gated_scan(**tensors), expected) < 1e-6
    assert len(calls) == 1


def test_fla_scalar_decay(monkeypatch: pytest.MonkeyPatch) -> None:
    tensors, expected = gated("scalar")
    naive = fla_function("simple_gla.naive.naive_recurrent_simple_gla")
    calls = stand_in(monkeypatch, "simple_gla.chunk_simple_gla", naive)
    assert worst(fla.gated_scan(**tensors), expected) < 1e-6
    assert len(calls) == 1


def test_fla_constant_decay_is_retention(monkeypatch: pytest.MonkeyPatch) -> None:
    """With RetNet's decays, what its retention gives, which scales by K^-1/2 and has no state."""
    naive = fla_function("retention.naive.naive_retention")

    def plain(q: Tensor, k: Tensor, v: Tensor, g_gamma: Tensor, scale: float, **rest: Any) -> tuple[Tensor, Tensor]:
        assert (scale, rest["output_final_state"], rest["initial_state"]) == (1.0, True, None)
        assert torch.allclose(g_gamma, torch.log(1 - 2.0 ** (-5 - torch.arange(4.0))))
        y = naive(*(x.transpose(1, 2) for x in (q * q.shape[-1] ** 0.5, k, v)))  # (B, H, T, V)
        return y.transpose(1, 2), torch.zeros(())

    calls = stand_in(monkeypatch, "simple_gla.chunk_simple_gla", plain)
    tensors, _ = gated("constant")
    tensors |= {"log_decay": torch.log(1 - 2.0 ** (-5 - torch.arange(4.0)))}
    del tensors["h0"]
    expected, _ = ssm_kernels.gated_scan(**tensors, backend="reference")
    assert error(fla.gated_scan(**tensors)[0], expected) < 1e-6
    assert len(calls) == 1


def test_fla_vector_decay(monkeypatch: pytest.MonkeyPatch) -> None:
    tensors, expected = gated("vector")
    naive = fla_function("gla.naive.naive_recurrent_gla")

    def plain(q: Tensor, k: Tensor, v: Tensor, g: Tensor, scale: float, **rest: Any) -> tuple[Tensor, Tensor]:
        return naive(q * scale * q.shape[-1] ** 0.5, k, v, g, **rest)  # it scales by K^-1/2 by itself

    calls = stand_in(monkeypatch, "gla.chunk_gla", plain)
    assert worst(fla.gated_scan(**tensors), expected) < 1e-6
    assert len(calls) == 1


def test_fla_bonus(monkeypatch: pytest.MonkeyPatch) -> None:
    tensors, expected = gated("vector", bonus=True)
    naive = fla_function("rwkv6.recurrent_naive.naive_recurrent_rwkv6")

    def plain(r: Tensor, k: Tensor, v: Tensor, w: Tensor, u: Tensor, **rest: Any) -> tuple[Tensor, Tensor]:
        y, hT = naive(*(x.transpose(1, 2) for x in (r, k, v, w)), u, **rest)  # (B, H, T, .)
        return y.transpose(1, 2), hT

    calls = stand_in(monkeypatch, "rwkv6.chunk_rwkv6", plain)
    assert worst(fla.gated_scan(**tensors), expected) < 1e-6
    assert len(calls) == 1


DELTA = {  # the kernel, its plain form, whether that has heads before tokens and scales q by K^-1/2, and the variant
    "none": ("delta_rule.chunk_delta_rule", "delta_rule.naive.delta_rule_recurrence", True, 18),
    "head": ("gated_delta_rule.chunk_gated_delta_rule", "gated_delta_rule.naive_recurrent_gated_delta_rule", False, 19),
    "key": ("kda.chunk_kda", "kda.naive.naive_recurrent_kda", False, 20),
    "generalized": (
        "generalized_delta_rule.chunk_dplr_delta_rule",
        "generalized_delta_rule.dplr.naive.dplr_recurrence",
        True,
        23,
    ),
}


@pytest.mark.parametrize("form", DELTA)
def test_fla_delta_rules(monkeypatch: pytest.MonkeyPatch, form: str) -> None:
    kernel, path, heads_first, variant = DELTA[form]
    naive, names = fla_function(path), {"a": "alpha", "b": "beta"} if form == "generalized" else {}

    def plain(scale: float, **given: Any) -> tuple[Tensor, Tensor]:
        if not heads_first:
            return naive(scale=scale, **given)
        state, wanted = given.pop("initial_state"), given.pop("output_final_state")
        turned = {names.get(n, n): x.transpose(1, 2) for n, x in given.items()}  # (B, H, T, .)
        turned["q"] = turned["q"] * scale * turned["q"].shape[-1] ** 0.5
        y, hT = naive(**turned, initial_state=state, output_final_state=wanted)
        return y.transpose(1, 2), hT

    calls = stand_in(monkeypatch, kernel, plain)
    case = make("delta_scan", 1, length=9, variant=variant).to(torch.float32)
    assert worst(fla.delta_scan(**case.tensors), case.function("reference")(*case.values)) < 1e-6
    assert len(calls) == 1


def test_what_fla_lacks_of_the_delta_scan_is_said() -> None:
    case = make("delta_scan", variant=22, resets=0.5).to(torch.float32)
    with pytest.raises(ValueError, match="fla: delta_scan has no resets"):
        fla.delta_scan(**case.tensors, resets=case.resets)
    with pytest.raises(ValueError, match="fla: delta_scan has no a and b but with a vector decay"):
        fla.delta_scan(**case.tensors)
    assert fla.unavailable("delta_scan", CUDA) is None


def test_what_fla_lacks_is_said() -> None:
    tensors, _ = gated("scalar")
    with pytest.raises(ValueError, match="fla: gated_scan has no resets"):
        fla.gated_scan(**tensors, resets=torch.zeros(2, 9, dtype=torch.bool))
    with pytest.raises(ValueError, match="fla: gated_scan has no bonus but with a vector decay"):
        fla.gated_scan(**tensors, bonus=torch.zeros(4, 3))
    assert fla.unavailable("gated_scan", CPU) == "fla: its kernels need a GPU, not cpu"
    assert fla.unavailable("selective_scan", CUDA) == "fla has no selective_scan"
    assert fla.unavailable("gated_scan", CUDA) is None


def test_fla_that_is_not_installed_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in sys.modules if name == "fla" or name.startswith("fla.")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "fla", None)
    said = fla.unavailable("gated_scan", CUDA)
    assert said is not None
    assert said.startswith("flash-linear-attention is not installed, or its installation is incomplete: ")


# --------------------------------------------------------------------------------------- mamba_ssm, which needs a GPU


def install(monkeypatch: pytest.MonkeyPatch, module: str, **functions: Any) -> None:
    """A module that holds these functions, where `import module` finds it."""
    made = ModuleType(module)
    for name, function in functions.items():
        setattr(made, name, function)
    monkeypatch.setitem(sys.modules, module, made)
    for parent in (module.rsplit(".", i)[0] for i in range(1, module.count(".") + 1)):
        monkeypatch.setitem(sys.modules, parent, ModuleType(parent))


def selective_scan_fn(
    u: Tensor,
    delta: Tensor,
    A: Tensor,
    B: Tensor,
    C: Tensor,
    D: Tensor | None = None,
    z: Tensor | None = None,
    delta_bias: Tensor | None = None,
    delta_softplus: bool = False,
    return_last_state: bool = False,
) -> tuple[Tensor, Tensor]:
    """With mamba_ssm's signature and layouts: u, delta, z (B, D, T); B, C (B, N, T); the last state (B, D, N)."""
    assert return_last_state
    delta = delta if delta_bias is None else delta + delta_bias[:, None]
    delta = F.softplus(delta) if delta_softplus else delta
    h, outputs = torch.zeros(u.shape[0], *A.shape), []
    for t in range(u.shape[2]):
        h = torch.exp(delta[:, :, t, None] * A) * h + (delta * u)[:, :, t, None] * B[:, None, :, t]
        outputs.append((h * C[:, None, :, t]).sum(-1))
    y = torch.stack(outputs, 2)
    y = y if D is None else y + D[:, None] * u
    return y if z is None else y * F.silu(z), h


def mamba_chunk_scan_combined(
    x: Tensor,
    dt: Tensor,
    A: Tensor,
    B: Tensor,
    C: Tensor,
    chunk_size: int,
    D: Tensor | None = None,
    z: Tensor | None = None,
    dt_bias: Tensor | None = None,
    initial_states: Tensor | None = None,
    seq_idx: Tensor | None = None,
    cu_seqlens: Tensor | None = None,
    dt_softplus: bool = False,
    dt_limit: tuple[float, float] = (0.0, float("inf")),
    return_final_states: bool = False,
) -> tuple[Tensor, Tensor]:
    """With mamba_ssm's signature and layouts: x (B, T, H, P), states (B, H, P, N), sequences numbered from 0."""
    assert return_final_states
    assert chunk_size > 0
    assert not dt_softplus
    B, C = (y.repeat_interleave(x.shape[2] // y.shape[2], 2) for y in (B, C))
    shape = (x.shape[0], x.shape[2], x.shape[3], B.shape[3])
    h = torch.zeros(shape) if initial_states is None else initial_states
    number, outputs = torch.zeros(x.shape[0]), []
    for t in range(x.shape[1]):
        if seq_idx is not None:
            assert seq_idx.dtype == torch.int32
            h = torch.where((seq_idx[:, t] == number)[:, None, None, None], h, 0.0)
            number = seq_idx[:, t]
        decay = torch.exp(dt[:, t] * A)[..., None, None]
        h = decay * h + (dt[:, t, :, None] * x[:, t])[..., None] * B[:, t, :, None, :]
        outputs.append((h * C[:, t, :, None, :]).sum(-1))
    return torch.stack(outputs, 1), h


def causal_conv1d_fn(
    x: Tensor,
    weight: Tensor,
    bias: Tensor | None = None,
    seq_idx: Tensor | None = None,
    initial_states: Tensor | None = None,
    return_final_states: bool = False,
    final_states_out: Tensor | None = None,
    activation: str | None = None,
) -> tuple[Tensor, Tensor]:
    """With causal_conv1d's signature and layouts: x (B, D, T), channels next to each other; states (B, D, K - 1)."""
    assert return_final_states
    assert x.stride(1) == 1
    K = weight.shape[1]
    before = torch.zeros(*x.shape[:2], K - 1) if initial_states is None else initial_states
    padded = torch.cat([before, x], 2)
    y = F.conv1d(padded, weight[:, None], bias, groups=x.shape[1])
    return F.silu(y) if activation == "silu" else y, padded[:, :, padded.shape[2] - (K - 1) :]


def same(case: Case, got: tuple[Tensor, Tensor]) -> bool:
    return worst(got, case.function("reference")(*case.values)) < 1e-6


def test_mamba_selective_scan(monkeypatch: pytest.MonkeyPatch) -> None:
    install(monkeypatch, "mamba_ssm.ops.selective_scan_interface", selective_scan_fn=selective_scan_fn)
    assert mamba_ssm.unavailable("selective_scan", CUDA) is None
    for variant in (0, 15):
        case = make("selective_scan", variant=variant, start=False).to(torch.float32)
        assert same(case, mamba_ssm.selective_scan(**case.tensors, **case.options))
    with pytest.raises(ValueError, match="mamba_ssm: selective_scan has no initial state"):
        mamba_ssm.selective_scan(**make("selective_scan").tensors)
    with pytest.raises(ValueError, match="mamba_ssm: selective_scan has no resets"):
        mamba_ssm.selective_scan(**case.tensors, resets=torch.zeros(2, 40, dtype=torch.bool))


@pytest.mark.parametrize("resets", [0.0, 0.3])
@pytest.mark.parametrize("start", [False, True])
def test_mamba_chunk_scan(start: bool, resets: float, monkeypatch: pytest.MonkeyPatch) -> None:
    combined = {"mamba_chunk_scan_combined": mamba_chunk_scan_combined}
    install(monkeypatch, "mamba_ssm.ops.triton.ssd_combined", **combined)
    case = make("gated_scan", 3, variant=24, start=start, resets=resets).to(torch.float32)
    assert case.tensors["log_decay"].dim() == 3
    assert case.tensors["k"].shape[2] < case.tensors["v"].shape[2]
    assert same(case, mamba_ssm.gated_scan(**case.tensors, resets=case.resets))
    with pytest.raises(ValueError, match="no decay other than a scalar per head and step"):
        mamba_ssm.gated_scan(**make("gated_scan", variant=1).tensors)
    with pytest.raises(ValueError, match="mamba_ssm: gated_scan has no bonus"):
        mamba_ssm.gated_scan(**case.tensors, bonus=torch.zeros(4, 4))


@pytest.mark.parametrize("start", [False, True])
def test_mamba_convolution(start: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    install(monkeypatch, "causal_conv1d", causal_conv1d_fn=causal_conv1d_fn)
    for variant in (0, 3):
        case = make("causal_conv1d", variant=variant, start=start).to(torch.float32)
        assert same(case, mamba_ssm.causal_conv1d(**case.tensors, **case.options))
    with pytest.raises(ValueError, match="causal_conv1d has no resets together with a state"):
        mamba_ssm.causal_conv1d(**case.tensors, resets=torch.zeros(2, 40, dtype=torch.bool))


def test_what_mamba_lacks_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    assert mamba_ssm.unavailable("diagonal_scan", CUDA) == "mamba_ssm has no diagonal_scan"
    assert mamba_ssm.unavailable("chunk_scan", CPU) == "mamba_ssm: chunk_scan needs a CUDA device, not cpu"
    for module in ("mamba_ssm", "causal_conv1d"):
        monkeypatch.setitem(sys.modules, module, None)
    for operation, package in (("selective_scan", "mamba-ssm"), ("causal_conv1d", "causal-conv1d")):
        said = mamba_ssm.unavailable(operation, CUDA)
        assert said is not None
        assert said.startswith(f"{package} is not installed, or its CUDA extension is missing: ")


def test_every_peer_says_what_it_lacks() -> None:
    for name in PEERS:
        assert isinstance(peer(name).unavailable("gated_scan", CPU), str)
