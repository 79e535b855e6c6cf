"""Other people's scans behind our own signatures: transformers' on any device, mamba_ssm's and fla's where they run."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterator
from functools import partial

import torch
from ssm_kernels.adapters import PEERS, peer
from torch import Tensor

from ssm.bench.cases import Arguments, Case

Outputs = tuple[Tensor, Tensor | None]
Peer = Callable[[Arguments], Outputs]

CHUNKS = (32, 64, 256)  # of transformers' Mamba-2; its default is 256


def peers(case: Case, device: torch.device) -> Iterator[tuple[str, Peer | str]]:
    """Name and function of every peer that has this operation, or why it takes no part."""
    if case.operation == "selective_scan":
        yield "transformers", _without_state(case) or _needs("transformers") or partial(_mamba, False)
        mambapy = _without_state(case) or _needs("transformers") or _needs("mambapy")
        yield "transformers, mambapy", mambapy or partial(_mamba, True)
    if case.system == "Mamba-2":
        for chunk in CHUNKS:
            yield f"transformers, chunk {chunk}", _needs("transformers") or partial(_mamba2, chunk)

    for name in PEERS:
        module = peer(name)
        missing = module.unavailable(case.operation, device)
        yield name, missing or partial(_adapted, getattr(module, case.operation), case)


def _adapted(scan: Callable[..., Outputs], case: Case, arguments: Arguments) -> Outputs:
    return scan(**arguments, **case.options)


def _needs(package: str) -> str | None:
    """Why a package cannot be used; None if it can."""
    try:
        importlib.import_module(package)
    except ImportError:
        return f"{package} is not installed: pip install 'ssm-length[bench]'"
    return None


def _without_state(case: Case) -> str | None:
    return "it takes no initial state" if case.state else None


def _mamba(mambapy: bool, arguments: Arguments) -> Outputs:
    """transformers' Mamba: one step after the other, or the parallel scan of mambapy."""
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
    """transformers' Mamba-2, whose dt scales the input and the decay at once."""
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


def _tensor(arguments: Arguments, name: str) -> Tensor:
    value = arguments[name]
    assert value is not None
    return value
