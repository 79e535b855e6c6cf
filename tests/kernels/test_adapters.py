"""The adapters pass our arguments to the peers correctly. Naive versions of the peers' kernels run in their place."""

from __future__ import annotations

import inspect
import sys
import warnings
from collections.abc import Callable
from functools import partial
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import ssm_kernels
import torch
import torch.nn.functional as F
from ssm_kernels.adapters import PEERS, fla, mamba_ssm, peer
from ssm_kernels.testing.cases import Case, make
from ssm_kernels.testing.numerics import normal, worst
from torch import Tensor

CPU, CUDA = torch.device("cpu"), torch.device("cuda")


def fla_function(path: str) -> Any:
    module, name = path.rsplit(".", 1)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return getattr(import_module(f"fla.ops.{module}"), name)


def replace_kernel(
    monkeypatch: pytest.MonkeyPatch, path: str, plain: Callable[..., tuple[Tensor, Tensor]]
) -> list[str]:
    """Replace a kernel of fla by `plain`, which takes the kernel's arguments by name. Returns the list of calls."""
    real, calls = fla_function(path), []

    def call(*args: Any, **kwargs: Any) -> tuple[Tensor, Tensor]:
        calls.append(path)
        return plain(**inspect.signature(real).bind(*args, **kwargs).arguments)

    module, name = path.rsplit(".", 1)
    monkeypatch.setattr(import_module(f"fla.ops.{module}"), name, call)
    return calls


def gated(form: str) -> tuple[dict[str, Tensor], list[Tensor]]:
    """Inputs of a gated scan in float32 with 4 heads in 2 groups, and the oracle's outputs."""
    B, T, H, G, K, V = 2, 9, 4, 2, 3, 5
    q, k, v, h0, u, a = normal(0, *[(B, T, G, K)] * 2, (B, T, H, V), (B, H, K, V), (H, K), (B, T, H, K))
    tensors = {"q": q, "k": k, "v": v} | ({} if form == "retention" else {"h0": h0})
    decays = {name: F.logsigmoid(x) for name, x in (("scalar", a[..., 0]), ("vector", a), ("bonus", a))}
    decays["retention"] = torch.log(1 - 2.0 ** (-5 - torch.arange(4.0)))
    tensors |= ({"log_decay": decays[form]} if form in decays else {}) | ({"bonus": u} if form == "bonus" else {})
    tensors = {n: x.float() for n, x in tensors.items()}
    return tensors, list(ssm_kernels.gated_scan(**tensors, backend="reference"))


def plain_retention(
    q: Tensor, k: Tensor, v: Tensor, g_gamma: Tensor, scale: float, naive: Any, **rest: Any
) -> tuple[Tensor, Tensor]:
    """fla's retention scales q by K^-1/2, has fixed decays, and takes and returns no state."""
    assert (scale, rest["output_final_state"], rest["initial_state"]) == (1.0, True, None)
    assert torch.allclose(g_gamma, torch.log(1 - 2.0 ** (-5 - torch.arange(4.0))))
    y = naive(*(x.transpose(1, 2) for x in (q * q.shape[-1] ** 0.5, k, v)))  # (B, H, T, V)
    return y.transpose(1, 2), torch.zeros(())


def plain_gla(
    q: Tensor, k: Tensor, v: Tensor, g: Tensor, scale: float, naive: Any, **rest: Any
) -> tuple[Tensor, Tensor]:
    """fla's naive loop scales q by K^-1/2."""
    return naive(q * scale * q.shape[-1] ** 0.5, k, v, g, **rest)  # type: ignore[no-any-return]


def plain_rwkv6(
    r: Tensor, k: Tensor, v: Tensor, w: Tensor, u: Tensor, naive: Any, **rest: Any
) -> tuple[Tensor, Tensor]:
    y, hT = naive(*(x.transpose(1, 2) for x in (r, k, v, w)), u, **rest)  # (B, H, T, .)
    return y.transpose(1, 2), hT


def plain_delta(naive: Any, scale: float, **given: Any) -> tuple[Tensor, Tensor]:
    """Loops with the layout (B, H, T, .) that scale q by K^-1/2."""
    state, wanted = given.pop("initial_state"), given.pop("output_final_state")
    names = {"a": "alpha", "b": "beta"} if "a" in given else {}
    turned = {names.get(n, n): x.transpose(1, 2) for n, x in given.items()}  # (B, H, T, .)
    turned["q"] = turned["q"] * scale * turned["q"].shape[-1] ** 0.5
    y, hT = naive(**turned, initial_state=state, output_final_state=wanted)
    return y.transpose(1, 2), hT


GATED = {  # inputs of the gated scan: fla's kernel, its naive loop, and a wrapper that gives it the kernel's arguments
    "none": ("linear_attn.chunk_linear_attn", "linear_attn.naive.naive_recurrent_linear_attn", None),
    "scalar": ("simple_gla.chunk_simple_gla", "simple_gla.naive.naive_recurrent_simple_gla", None),
    "retention": ("simple_gla.chunk_simple_gla", "retention.naive.naive_retention", plain_retention),
    "vector": ("gla.chunk_gla", "gla.naive.naive_recurrent_gla", plain_gla),
    "bonus": ("rwkv6.chunk_rwkv6", "rwkv6.recurrent_naive.naive_recurrent_rwkv6", plain_rwkv6),
}
DELTA = {  # variants of the delta scan
    18: ("delta_rule.chunk_delta_rule", "delta_rule.naive.delta_rule_recurrence", plain_delta),
    19: (
        "gated_delta_rule.chunk_gated_delta_rule",
        "gated_delta_rule.naive_recurrent_gated_delta_rule",
        None,
    ),
    20: ("kda.chunk_kda", "kda.naive.naive_recurrent_kda", None),
    23: (
        "generalized_delta_rule.chunk_dplr_delta_rule",
        "generalized_delta_rule.dplr.naive.dplr_recurrence",
        plain_delta,
    ),
}


@pytest.mark.parametrize("form", [*GATED, *DELTA])
def test_fla(monkeypatch: pytest.MonkeyPatch, form: str | int) -> None:
    """The adapter calls the right kernel, with arguments in the right places."""
    kernel, path, wrapper = (GATED | DELTA)[form]  # type: ignore[operator]
    naive = fla_function(path)
    calls = replace_kernel(monkeypatch, kernel, partial(wrapper, naive=naive) if wrapper else naive)
    if isinstance(form, int):
        case = make("delta_scan", 1, length=9, variant=form).to(torch.float32)
        got, expected = fla.delta_scan(**case.tensors), list(case.function("reference")(*case.values))
    else:
        tensors, expected = gated(form)
        got = fla.gated_scan(**tensors)
    outputs = 1 if form == "retention" else 2
    assert worst(got[:outputs], expected[:outputs]) < 1e-6
    assert len(calls) == 1


def test_errors_of_flas_delta_scan() -> None:
    case = make("delta_scan", variant=22, resets=0.5).to(torch.float32)
    with pytest.raises(ValueError, match="fla: delta_scan has no resets"):
        fla.delta_scan(**case.tensors, resets=case.resets)
    with pytest.raises(ValueError, match="fla: delta_scan has no a and b without a vector decay"):
        fla.delta_scan(**case.tensors)
    assert fla.unavailable("delta_scan", CUDA) is None


def test_errors_of_flas_gated_scan() -> None:
    tensors, _ = gated("scalar")
    with pytest.raises(ValueError, match="fla: gated_scan has no resets"):
        fla.gated_scan(**tensors, resets=torch.zeros(2, 9, dtype=torch.bool))
    with pytest.raises(ValueError, match="fla: gated_scan has no bonus without a vector decay"):
        fla.gated_scan(**tensors, bonus=torch.zeros(4, 3))
    assert fla.unavailable("gated_scan", CPU) == "fla: its kernels need a GPU, not cpu"
    assert fla.unavailable("selective_scan", CUDA) == "fla has no selective_scan"
    assert fla.unavailable("gated_scan", CUDA) is None


def test_error_without_fla(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in sys.modules if name == "fla" or name.startswith("fla.")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "fla", None)
    reason = fla.unavailable("gated_scan", CUDA)
    assert reason is not None
    assert reason.startswith("flash-linear-attention is not installed, or cannot be imported: ")


@pytest.mark.parametrize(("name", "package"), [("fla", "flash-linear-attention"), ("mamba_ssm", "mamba-ssm")])
def test_a_peer_that_fails_at_its_import_is_unavailable(
    name: str, package: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As with a version of triton that it does not know. The other implementations are still measured."""
    for loaded in [other for other in sys.modules if other.split(".")[0] == name]:
        monkeypatch.delitem(sys.modules, loaded)
    (tmp_path / f"{name}.py").write_text("raise RuntimeError('this triton is too new')\n")
    monkeypatch.syspath_prepend(tmp_path)
    reason = peer(name).unavailable("gated_scan", CUDA)
    assert reason == f"{package} is not installed, or cannot be imported: this triton is too new"


# mamba_ssm cannot be installed without a GPU: these functions have its signatures and layouts.


def install(monkeypatch: pytest.MonkeyPatch, module: str, **functions: Any) -> None:
    """Let `import module` find a module with these functions."""
    made = ModuleType(module)
    vars(made).update(functions)
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
    """u, delta, z: (B, D, T); B, C: (B, N, T); last state: (B, D, N)."""
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
    """x: (B, T, H, P); states: (B, H, P, N). seq_idx numbers the sequences from 0."""
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
    """x: (B, D, T) with stride 1 over channels; states: (B, D, K - 1)."""
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


def test_reasons_why_mamba_ssm_is_unavailable(monkeypatch: pytest.MonkeyPatch) -> None:
    assert mamba_ssm.unavailable("diagonal_scan", CUDA) == "mamba_ssm has no diagonal_scan"
    assert mamba_ssm.unavailable("chunk_scan", CPU) == "mamba_ssm: chunk_scan needs a CUDA device, not cpu"
    for module in ("mamba_ssm", "causal_conv1d"):
        monkeypatch.setitem(sys.modules, module, None)
    for operation, package in (("selective_scan", "mamba-ssm"), ("causal_conv1d", "causal-conv1d")):
        reason = mamba_ssm.unavailable(operation, CUDA)
        assert reason is not None
        assert reason.startswith(f"{package} is not installed, or cannot be imported: ")


def test_every_peer_gives_a_reason_on_the_cpu() -> None:
    for name in PEERS:
        assert isinstance(peer(name).unavailable("gated_scan", CPU), str)
