"""A short causal depthwise convolution that carries its last inputs (Mamba, Mamba-2, H3, Griffin).

y_t = act(bias + sum_{i=0}^{K-1} w_i * x_{t-K+1+i})        per channel
"""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from ssm_kernels import reference


def causal_conv1d(
    x: Tensor,
    weight: Tensor,
    bias: Tensor | None = None,
    state: Tensor | None = None,
    *,
    resets: Tensor | None = None,
    activation: str | None = None,
    backend: str = "torch",
) -> tuple[Tensor, Tensor]:
    """Convolve a whole sequence, from the inputs before it to the inputs that the next one needs.

    Args:
        x: inputs, (B, T, D).
        weight: (D, K); its last column multiplies the present input.
        bias: (D,) or None.
        state: the K - 1 inputs before x, oldest first, (B, K - 1, D); None is zero.
        resets: (B, T) bool; True forgets all inputs before step t.
        activation: None or "silu".
        backend: "torch" or "reference" (one step at a time).

    Returns:
        y (B, T, D), and the state after it (B, K - 1, D).

    Raises:
        ValueError: shapes that do not fit, or an unknown name.
    """
    _check_shapes(x, weight, bias, state, resets)
    B, _, D = x.shape
    K = weight.shape[1]
    if activation not in (None, "silu"):
        raise ValueError(f"causal_conv1d: unknown activation '{activation}', expected None or silu")
    if backend == "reference":
        return reference.causal_conv1d(x, weight, bias, state, resets, activation)
    if backend != "torch":
        raise ValueError(f"causal_conv1d: unknown backend '{backend}', expected torch or reference")

    before = x.new_zeros(B, K - 1, D) if state is None else state.to(x.dtype)
    padded = torch.cat([before, x], 1)  # (B, K - 1 + T, D)
    masks = None if resets is None or K == 1 else _tap_masks(resets, K, x.dtype)
    y = _Taps.apply(padded, weight, bias, masks)
    y = F.silu(y) if activation == "silu" else y
    after = padded[:, padded.shape[1] - (K - 1) :].clone()  # (B, K - 1, D); a view would keep all inputs alive
    if resets is not None:
        after = after * _kept_inputs(resets, K, x.dtype)
    return y, after


class _Taps(torch.autograd.Function):
    """sum over taps, accumulated in place: autograd over K products would store and add K full tensors."""

    @staticmethod
    def forward(ctx: Any, padded: Tensor, weight: Tensor, bias: Tensor | None, masks: Tensor | None) -> Tensor:
        K = weight.shape[1]
        T = padded.shape[1] - K + 1
        y = padded[:, K - 1 :] * weight[:, K - 1]  # (B, T, D)
        for i in range(K - 1):
            tap = padded[:, i : i + T]  # (B, T, D)
            y.addcmul_(tap if masks is None else tap * masks[i], weight[:, i])
        if bias is not None:
            y += bias
        ctx.save_for_backward(padded, weight, masks)
        ctx.has_bias = bias is not None
        return y

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        (dy,) = grads
        padded, weight, masks = ctx.saved_tensors
        K = weight.shape[1]
        T = padded.shape[1] - K + 1
        d_padded, d_weight = torch.zeros_like(padded), torch.empty_like(weight)
        for i in range(K):
            masked = dy if masks is None or i == K - 1 else dy * masks[i]  # (B, T, D)
            d_padded[:, i : i + T].addcmul_(masked, weight[:, i])
            d_weight[:, i] = (masked * padded[:, i : i + T]).sum((0, 1))
        return d_padded, d_weight, dy.sum((0, 1)) if ctx.has_bias else None, None


def _tap_masks(resets: Tensor, K: int, dtype: torch.dtype) -> Tensor:
    """(K - 1, B, T, 1): 1 where tap i, which reaches back K - 1 - i steps, crosses no reset."""
    T = resets.shape[1]
    masks, crossed = [], resets  # a step back of one crosses the reset at t itself
    for lag in range(1, K):
        masks.append(~crossed)
        shifted = F.pad(resets, (lag, 0))[:, :T]
        crossed = crossed | shifted
    return torch.stack(masks[::-1]).to(dtype).unsqueeze(-1)


def _kept_inputs(resets: Tensor, K: int, dtype: torch.dtype) -> Tensor:
    """(B, K - 1, 1): 1 for those of the last K - 1 inputs that come at or after the last reset."""
    later = resets.flip(1).to(torch.int32).cumsum(1).flip(1) - resets.to(torch.int32)  # resets strictly after t
    last = later[:, -(K - 1) :] if K > 1 else later[:, :0]
    short = (K - 1) - last.shape[1]
    before = resets.any(1, keepdim=True).to(torch.int32).expand(-1, short)  # inputs that came in with the state
    return (torch.cat([before, last], 1) == 0).to(dtype).unsqueeze(-1)


def _check_shapes(x: Tensor, weight: Tensor, bias: Tensor | None, state: Tensor | None, resets: Tensor | None) -> None:
    if x.dim() == 3 and x.shape[1] > 0 and weight.dim() == 2 and weight.shape[1] > 0:
        (B, T, D), K = x.shape, weight.shape[1]
        expected = ((weight, (D, K)), (bias, (D,)), (state, (B, K - 1, D)), (resets, (B, T)))
        if all(tensor is None or tensor.shape == shape for tensor, shape in expected):
            return
    named = {"x": x, "weight": weight, "bias": bias, "state": state, "resets": resets}
    got = ", ".join(f"{name} {tuple(tensor.shape)}" for name, tensor in named.items() if tensor is not None)
    says = "x is (B, T, D) with T >= 1, weight (D, K), bias (D,), state (B, K - 1, D), resets (B, T)"
    raise ValueError(f"causal_conv1d: {says}; got {got}")
