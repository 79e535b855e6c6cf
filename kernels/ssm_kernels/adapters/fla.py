"""flash-linear-attention's chunked Triton kernels with the signatures of `gated_scan` and `delta_scan`.

The form of the decay selects the kernel:

    none            chunk_linear_attn, without its normalization          chunk_delta_rule
    (H,)            chunk_simple_gla with g_gamma; chunk_retention is this with RetNet's own decays
    (B, T, H)       chunk_simple_gla with g                               chunk_gated_delta_rule
    (B, T, H, K)    chunk_gla; with a bonus chunk_rwkv6                   chunk_kda; with a and b chunk_dplr_delta_rule

Its layout is the same as ours: (B, T, H, K) with a float32 state (B, H, K, V). But q and k have as many heads as v.
"""

from __future__ import annotations

import warnings
from importlib import import_module
from typing import Any

import torch
from torch import Tensor

from ssm_kernels.adapters import refuse


def unavailable(operation: str, device: torch.device) -> str | None:
    """The reason why fla cannot run on this device; None if it can."""
    if operation not in ("gated_scan", "delta_scan"):
        return f"fla has no {operation}"
    if device.type != "cuda":
        return f"fla: its kernels need a GPU, not {device.type}"
    try:
        function("gla", "chunk_gla")
    except Exception as error:  # with a triton that it does not know, its import raises any error
        return f"flash-linear-attention is not installed, or cannot be imported: {error}"
    return None


def gated_scan(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    log_decay: Tensor | None = None,
    h0: Tensor | None = None,
    *,
    bonus: Tensor | None = None,
    resets: Tensor | None = None,
    chunk: int = 64,
) -> tuple[Tensor, Tensor]:
    """`ssm_kernels.gated_scan` without resets, without a gradient for a decay of shape (H,), with fla's chunk size.

    Raises:
        ValueError: resets are given, or a bonus without a vector decay.
    """
    if resets is not None:
        raise refuse("fla", "gated_scan", "resets within a batch")
    if bonus is not None and (log_decay is None or log_decay.dim() != 4):
        raise refuse("fla", "gated_scan", "bonus without a vector decay, (B, T, H, K)")
    q, k, common = _common(q, k, v, h0)
    if log_decay is None:
        y, hT = function("linear_attn", "chunk_linear_attn")(q, k, v, normalize=False, **common)
    elif log_decay.dim() == 1:
        y, hT = function("simple_gla", "chunk_simple_gla")(q, k, v, g_gamma=log_decay, **common)
    elif log_decay.dim() == 3:
        y, hT = function("simple_gla", "chunk_simple_gla")(q, k, v, g=log_decay, **common)
    elif bonus is None:
        y, hT = function("gla", "chunk_gla")(q, k, v, log_decay, **common)
    else:
        y, hT = function("rwkv6", "chunk_rwkv6")(q, k, v, log_decay, bonus, **common)
    return y, hT


def delta_scan(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    beta: Tensor | None = None,
    log_decay: Tensor | None = None,
    h0: Tensor | None = None,
    *,
    a: Tensor | None = None,
    b: Tensor | None = None,
    resets: Tensor | None = None,
    chunk: int = 64,
) -> tuple[Tensor, Tensor]:
    """`ssm_kernels.delta_scan` without resets, with fla's chunk size.

    Raises:
        ValueError: resets are given, or a and b without a vector decay.
    """
    if resets is not None:
        raise refuse("fla", "delta_scan", "resets within a batch")
    if a is not None and (log_decay is None or log_decay.dim() != 4):
        raise refuse("fla", "delta_scan", "a and b without a vector decay, (B, T, H, K)")
    q, k, common = _common(q, k, v, h0)
    if a is not None:
        kernel, given = function("generalized_delta_rule", "chunk_dplr_delta_rule"), {"a": a, "b": b, "gk": log_decay}
    elif log_decay is None:
        kernel, given = function("delta_rule", "chunk_delta_rule"), {"beta": beta}
    elif log_decay.dim() == 3:
        kernel, given = function("gated_delta_rule", "chunk_gated_delta_rule"), {"g": log_decay, "beta": beta}
    else:
        kernel, given = function("kda", "chunk_kda"), {"g": log_decay, "beta": beta}
    y, hT = kernel(q=q, k=k, v=v, **given, **common)
    return y, hT


def _common(q: Tensor, k: Tensor, v: Tensor, h0: Tensor | None) -> tuple[Tensor, Tensor, dict[str, Any]]:
    """q and k for every head, (B, T, H, K), and the arguments that all kernels share."""
    sharing = v.shape[2] // k.shape[2]  # heads per group
    q, k = (x if sharing == 1 else x.repeat_interleave(sharing, 2) for x in (q, k))
    state = None if h0 is None else h0.float()
    return q, k, {"scale": 1.0, "initial_state": state, "output_final_state": True}


def function(module: str, name: str) -> Any:
    """A function of fla's module `fla.ops.<module>`."""
    with warnings.catch_warnings():  # its import warns that there is no GPU
        warnings.simplefilter("ignore")
        return getattr(import_module(f"fla.ops.{module}"), name)
