"""Functions that several mixers use."""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F
from ssm_kernels.dtypes import cast
from torch import Tensor, nn

SMALLEST_DT = 1e-4  # smallest dt at initialization, as in the authors' code of Mamba


def upcast(x: Tensor) -> Tensor:
    """x in float32; float64 stays float64."""
    return cast(x, torch.promote_types(x.dtype, torch.float32))


def log_uniform(size: int, low: float, high: float) -> Tensor:
    """(size,) random numbers, log-uniform between `low` and `high`."""
    return torch.empty(size).uniform_(math.log(low), math.log(high)).exp()


def inverse_softplus(y: Tensor) -> Tensor:
    """x with softplus(x) = y, for y > 0; accurate for small y."""
    return y + torch.log(-torch.expm1(-y))


def initial_step_bias(size: int, low: float, high: float) -> Tensor:
    """(size,) biases whose softplus is a log-uniform step size (Mamba)."""
    return inverse_softplus(log_uniform(size, low, high).clamp_min(SMALLEST_DT))


def conv_step(x: Tensor, weight: Tensor, bias: Tensor | None, last: Tensor | None) -> tuple[Tensor, Tensor]:
    """One step of a short causal depthwise convolution.

    Args:
        x: (B, C).
        weight: (C, K); the last column multiplies x.
        bias: (C,).
        last: the K - 1 inputs before x, (B, K - 1, C); None is zero.

    Returns:
        The output (B, C), and `last` for the next call, both in float32 at least.
    """
    x = upcast(x).unsqueeze(1)  # (B, 1, C)
    before = x.new_zeros(x.shape[0], weight.shape[1] - 1, x.shape[2]) if last is None else last
    window = torch.cat([before, x], 1)  # (B, K, C)
    y = (window * weight.T).sum(1)
    return y if bias is None else y + bias, window[:, 1:]


def shifted(x: Tensor, last: Tensor | None, resets: Tensor | None) -> tuple[Tensor, Tensor]:
    """The token before each token (RWKV's token shift).

    Args:
        x: (B, T, D).
        last: the token before the first token, (B, D); None is zero.
        resets: (B, T) bool; True: no token comes before this token.

    Returns:
        (B, T, D), and `last` for the next call (B, D).
    """
    first = torch.zeros_like(x[:, :1]) if last is None else last.unsqueeze(1).to(x.dtype)
    before = torch.cat([first, x[:, :-1]], 1)  # (B, T, D)
    if resets is not None:
        before = before.masked_fill(resets.unsqueeze(-1), 0.0)
    return before, x[:, -1].clone()


def l2_norm(x: Tensor) -> Tensor:
    """x / |x| over the last axis, in float32, with fla's epsilon (keys of the delta rule)."""
    x = upcast(x)
    return x * torch.rsqrt(x.square().sum(-1, keepdim=True) + 1e-6)


def head_norm(x: Tensor, eps: float) -> Tensor:
    """Group norm by head, without weights: (..., H, V) with mean 0 and variance 1 over V, in float32."""
    return F.layer_norm(upcast(x), x.shape[-1:], eps=eps)


def rms_head_norm(x: Tensor, weight: Tensor, eps: float) -> Tensor:
    """RMSNorm by head: (..., H, V) with mean square 1 over V, times `weight` (V,), in float32."""
    return F.rms_norm(upcast(x), weight.shape, eps=eps) * weight


def conv_init(weight: Tensor, bias: Tensor | None = None) -> None:
    """torch.nn.Conv1d's initialization of a depthwise convolution, weight (C, K): uniform within 1 / sqrt(K)."""
    bound = 1 / math.sqrt(weight.shape[1])
    for parameter in (weight,) if bias is None else (weight, bias):
        nn.init.uniform_(parameter, -bound, bound)


def scaled_xavier_init(weight: Tensor) -> None:
    """Xavier's uniform initialization with gain 2^-2.5, as in the authors' code of RetNet, GLA and DeltaNet."""
    nn.init.xavier_uniform_(weight, gain=2**-2.5)


def small_init(weight: Tensor) -> None:
    """GPT-NeoX's initialization of a projection from D: N(0, 2 / (5 D)) (Nguyen & Salazar 2019)."""
    nn.init.normal_(weight, std=math.sqrt(2 / (5 * weight.shape[1])))


def residual_init(weight: Tensor, n_layers: int) -> None:
    """GPT-NeoX's initialization of a projection to the residual stream: N(0, 4 / (L^2 D)) (Wang & Komatsuzaki 2021)."""
    nn.init.normal_(weight, std=2 / (n_layers * math.sqrt(weight.shape[0])))
