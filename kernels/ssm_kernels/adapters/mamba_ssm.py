"""mamba_ssm's selective scan (Mamba-1, CUDA) and chunk scan (Mamba-2, Triton), and causal_conv1d, for comparison.

The selective scan and the convolution take (B, D, T); they get transposed views here. Mamba-2's state is (B, H, V, K)
there and (B, H, K, V) here.
"""

from __future__ import annotations

from importlib import import_module
from typing import Any

import torch
from torch import Tensor

from ssm_kernels.adapters import refuse

# Operation -> (package to install, module, function).
WHERE = {
    "selective_scan": ("mamba-ssm", "mamba_ssm.ops.selective_scan_interface", "selective_scan_fn"),
    "chunk_scan": ("mamba-ssm", "mamba_ssm.ops.triton.ssd_combined", "mamba_chunk_scan_combined"),
    "gated_scan": ("mamba-ssm", "mamba_ssm.ops.triton.ssd_combined", "mamba_chunk_scan_combined"),
    "causal_conv1d": ("causal-conv1d", "causal_conv1d", "causal_conv1d_fn"),
}


def unavailable(operation: str, device: torch.device) -> str | None:
    """The reason why an operation cannot run on this device; None if it can."""
    if operation not in WHERE:
        return f"mamba_ssm has no {operation}"
    if device.type != "cuda":
        return f"mamba_ssm: {operation} needs a CUDA device, not {device.type}"
    try:
        _function(operation)
    except Exception as error:  # with a torch or a triton that it does not know, its import raises any error
        return f"{WHERE[operation][0]} is not installed, or cannot be imported: {error}"
    return None


def selective_scan(
    u: Tensor,
    dt: Tensor,
    A: Tensor,
    B: Tensor,
    C: Tensor,
    D: Tensor | None = None,
    dt_bias: Tensor | None = None,
    z: Tensor | None = None,
    h0: Tensor | None = None,
    *,
    dt_softplus: bool = True,
    resets: Tensor | None = None,
) -> tuple[Tensor, Tensor]:
    """`ssm_kernels.selective_scan` without h0, without resets, and without a gradient through hT.

    Raises:
        ValueError: h0 or resets are given.
    """
    if h0 is not None:
        raise refuse("mamba_ssm", "selective_scan", "initial state")
    if resets is not None:
        raise refuse("mamba_ssm", "selective_scan", "resets")
    u, dt, B, C = (x.transpose(1, 2) for x in (u, dt, B, C))  # (B, D, T) and (B, N, T)
    y, hT = _function("selective_scan")(
        u,
        dt,
        A.float(),
        B,
        C,
        D=None if D is None else D.float(),
        z=None if z is None else z.transpose(1, 2),
        delta_bias=None if dt_bias is None else dt_bias.float(),
        delta_softplus=dt_softplus,
        return_last_state=True,
    )
    return y.transpose(1, 2), hT


def chunk_scan(
    x: Tensor,
    dt: Tensor,
    A: Tensor,
    B: Tensor,
    C: Tensor,
    h0: Tensor | None = None,
    *,
    resets: Tensor | None = None,
    chunk: int = 256,
) -> tuple[Tensor, Tensor]:
    """Mamba-2's own form, h_t = exp(dt_t A) h_{t-1} + dt_t B_t x_t. It equals gated_scan(C, B, dt x, dt A, h0).

    Args:
        x: (B, T, H, V).
        dt: (B, T, H), after bias and softplus.
        A: (H,).
        B, C: (B, T, G, K).
        h0: (B, H, K, V) or None.
        resets: (B, T) bool or None. They become sequence numbers; the initial state has number 0.
        chunk: tokens per chunk.

    Returns:
        y (B, T, H, V) and the final state (B, H, K, V).
    """
    y, hT = _function("chunk_scan")(
        x,
        dt,
        A,
        B,
        C,
        chunk_size=chunk,
        initial_states=None if h0 is None else h0.transpose(2, 3).contiguous(),
        seq_idx=None if resets is None else resets.cumsum(1).to(torch.int32),
        return_final_states=True,
    )
    return y, hT.transpose(2, 3)


def gated_scan(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    log_decay: Tensor | None = None,
    h0: Tensor | None = None,
    *,
    bonus: Tensor | None = None,
    resets: Tensor | None = None,
    chunk: int = 256,
) -> tuple[Tensor, Tensor]:
    """`ssm_kernels.gated_scan` with a scalar decay per head and step that is neither 0 nor 1.

    In Mamba-2 one number, dt, gives the decay and scales the inputs: dt = -log_decay, A = -1 and x = v / dt. Its time
    therefore includes this division.

    Raises:
        ValueError: the decay has another form, or a bonus is given.
    """
    if log_decay is None or log_decay.dim() != 3:
        raise refuse("mamba_ssm", "gated_scan", "decay other than a scalar per head and step, (B, T, H)")
    if bonus is not None:
        raise refuse("mamba_ssm", "gated_scan", "bonus")
    dt = -log_decay  # (B, T, H)
    A = -torch.ones_like(dt[0, 0])  # (H,)
    return chunk_scan((v / dt.unsqueeze(-1)).to(v.dtype), dt, A, k, q, h0, resets=resets, chunk=chunk)


def causal_conv1d(
    x: Tensor,
    weight: Tensor,
    bias: Tensor | None = None,
    state: Tensor | None = None,
    *,
    resets: Tensor | None = None,
    activation: str | None = None,
) -> tuple[Tensor, Tensor]:
    """`ssm_kernels.causal_conv1d` without resets, for K from 2 to 4 and a multiple of 8 channels.

    Raises:
        ValueError: resets are given.
    """
    if resets is not None:
        raise refuse("causal_conv1d", "causal_conv1d", "resets together with a state")
    y, after = _function("causal_conv1d")(
        x.transpose(1, 2),  # (B, D, T), channels contiguous in memory
        weight,
        bias,
        initial_states=None if state is None else state.to(x.dtype).transpose(1, 2),  # (B, D, K - 1), likewise
        return_final_states=True,
        activation=activation,
    )
    return y.transpose(1, 2), after.transpose(1, 2)


def _function(operation: str) -> Any:
    _, module, name = WHERE[operation]
    return getattr(import_module(module), name)
