"""Scans of other projects with our signatures: transformers, and on GPUs mamba_ssm and fla.

On a CPU, where fla's kernels cannot run, its delta rules are measured in their plain PyTorch form. On a GPU, Mamba in
transformers is left out: it goes step by step, and takes minutes at the sizes of a GPU.
"""

from __future__ import annotations

import importlib
import inspect
import math
from collections.abc import Callable, Iterator
from functools import partial

import torch
from torch import Tensor

from ssm_kernels.adapters import PEERS, fla, peer
from ssm_kernels.benchmarks.cases import Arguments, Case

Outputs = tuple[Tensor, Tensor | None]
Peer = Callable[[Arguments], Outputs]

CHUNKS = (32, 64, 256)  # of transformers' Mamba-2; its default is 256


def peers(case: Case, device: torch.device) -> Iterator[tuple[str, Peer | str]]:
    """(name, function) of every peer that has this operation, or (name, reason why it cannot run)."""
    if case.operation == "selective_scan" and device.type == "cpu":
        yield "transformers", _without_state(case) or _needs("transformers") or partial(_mamba, False)
        mambapy = _without_state(case) or _needs("transformers") or _needs("mambapy")
        yield "transformers, mambapy", mambapy or partial(_mamba, True)
    if case.system == "Mamba-2":
        for chunk in CHUNKS:
            yield f"transformers, chunk {chunk}", _needs("transformers") or partial(_mamba2, chunk)
    if case.system == "Gated DeltaNet":
        for chunk in (32, 64):  # its default is 64
            yield f"transformers, chunk {chunk}", _needs("transformers") or partial(_gated_delta, chunk)
    if case.operation == "delta_scan" and device.type == "cpu":  # fla's kernels need a GPU
        unfit = _without_state(case) if case.system == "DeltaNet" else None
        yield "fla, plain", unfit or _needs("fla") or partial(PLAIN[case.system], math.gcd(case.sizes[1], 32))

    for name in PEERS:
        module = peer(name)
        missing = module.unavailable(case.operation, device)
        yield name, missing or partial(_adapted, getattr(module, case.operation), case)


def _adapted(scan: Callable[..., Outputs], case: Case, arguments: Arguments) -> Outputs:
    return scan(**arguments, **case.options)


def _needs(package: str) -> str | None:
    """The reason why a package cannot be used; None if it can."""
    try:
        importlib.import_module(package)
    except ImportError:
        return f"{package} is not installed: pip install '.[bench]' in the clone"
    return None


def _without_state(case: Case) -> str | None:
    return "it takes no initial state" if case.state else None


def _mamba(mambapy: bool, arguments: Arguments) -> Outputs:
    """transformers' Mamba: step by step, or with the parallel scan of mambapy."""
    from transformers.models.mamba.modeling_mamba import mamba_selective_scan

    u, dt, B, C = (_tensor(arguments, name).transpose(1, 2) for name in ("u", "dt", "B", "C"))  # (B, D or N, T)
    y = mamba_selective_scan.__wrapped__(
        u,
        dt,
        arguments["A"],
        B,
        C,
        D=arguments["D"],
        delta_bias=arguments["dt_bias"],
        delta_softplus=True,
        use_mambapy=mambapy,
    )
    return y.transpose(1, 2), None


def _mamba2(chunk: int, arguments: Arguments) -> Outputs:
    """transformers' Mamba-2. Its dt scales both the input and the decay."""
    from transformers.models.mamba2.modeling_mamba2 import mamba2_chunk_scan

    q, k, v, log_decay = (_tensor(arguments, name) for name in ("q", "k", "v", "log_decay"))
    dt, h0 = -log_decay, arguments.get("h0")
    y, state = mamba2_chunk_scan.__wrapped__(
        v / dt.unsqueeze(-1),
        dt,
        -torch.ones_like(dt[0, 0]),
        k,
        q,
        chunk,
        initial_states=None if h0 is None else h0.transpose(-1, -2),
        return_final_states=True,
    )
    return y, state.transpose(-1, -2)


def _gated_delta(chunk: int, arguments: Arguments) -> Outputs:
    """transformers' Gated DeltaNet (Qwen3-Next), which scales q by K^-1/2."""
    from transformers.models.qwen3_next.modeling_qwen3_next import torch_chunk_gated_delta_rule

    q, k, v, beta, g = (_tensor(arguments, name) for name in ("q", "k", "v", "beta", "log_decay"))
    y, state = inspect.unwrap(torch_chunk_gated_delta_rule)(  # without fla's replacement
        _unscaled(q), k, v, g, beta, chunk, initial_state=arguments.get("h0"), output_final_state=True
    )
    return y, state


def _fla_delta(chunk: int, arguments: Arguments) -> Outputs:
    """fla's DeltaNet. Its layout is (B, H, T, .), and it scales q by K^-1/2."""
    q, k, v, beta = (_tensor(arguments, name).transpose(1, 2) for name in ("q", "k", "v", "beta"))  # (B, H, T, .)
    y, state = fla.function("delta_rule.naive", "delta_rule_chunkwise")(_unscaled(q), k, v, beta, chunk)
    return y.transpose(1, 2), state


def _fla_gated(file: str, function: str, chunk: int, arguments: Arguments) -> Outputs:
    """fla's Gated DeltaNet and KDA."""
    q, k, v, beta, g = (_tensor(arguments, name) for name in ("q", "k", "v", "beta", "log_decay"))
    more = {"scale": 1.0, "initial_state": arguments.get("h0"), "output_final_state": True, "chunk_size": chunk}
    y, state = fla.function(file, function)(q=q, k=k, v=v, beta=beta, g=g, **more)
    return y, state


def _fla_dplr(chunk: int, arguments: Arguments) -> Outputs:
    """fla's RWKV-7, in the form "diagonal plus low rank" (DPLR)."""
    q, k, v, a, b, g = (_tensor(arguments, name).transpose(1, 2) for name in ("q", "k", "v", "a", "b", "log_decay"))
    y, state = fla.function("generalized_delta_rule.dplr.naive", "dplr_chunkwise")(
        _unscaled(q), k, v, a, b, g, arguments.get("h0"), chunk_size=chunk
    )
    return y.transpose(1, 2), state


PLAIN: dict[str, Callable[[int, Arguments], Outputs]] = {
    "DeltaNet": _fla_delta,
    "Gated DeltaNet": partial(_fla_gated, "gated_delta_rule.naive", "naive_chunk_gated_delta_rule"),
    "KDA": partial(_fla_gated, "kda.naive", "naive_chunk_kda"),
    "RWKV-7": _fla_dplr,
}


def _unscaled(q: Tensor) -> Tensor:
    """q times K^1/2, for peers that scale q by K^-1/2."""
    return q * q.shape[-1] ** 0.5


def _tensor(arguments: Arguments, name: str) -> Tensor:
    value = arguments[name]
    assert value is not None
    return value
