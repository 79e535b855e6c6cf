"""Linear maps. On a CPU, float32 products are computed by oneDNN where PyTorch's default, MKL, is slow.

On x86 processors that are not Intel's, MKL's float32 products use AVX2 at most. oneDNN, which PyTorch contains too,
uses AVX-512. On a core of an AMD EPYC (Zen 5), it is 1.6 to 2.3 times as fast.
"""

from __future__ import annotations

from functools import cache
from typing import Any

import torch
import torch.nn.functional as F
from ssm_kernels.native import cpu
from ssm_kernels.operators import needs_dispatcher
from torch import Tensor, nn
from torch.autograd import forward_ad

ROWS = 32  # oneDNN keeps code for each number of rows, so it gets multiples only; it is slow for a few rows
FEWEST_MULTIPLY_ADDS = 2**21  # below, the overhead of calls is larger than the gain


class Linear(nn.Linear):
    """nn.Linear by `linear`."""

    def forward(self, input: Tensor) -> Tensor:
        """(..., K) -> (..., N)."""
        return linear(input, self.weight, self.bias)


def linear(x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """x W^T + b, as torch.nn.functional.linear: x (..., K), weight (N, K), bias (N,) -> (..., N)."""
    if not _for_onednn(x, weight, bias):
        return F.linear(x, weight, bias)
    return _product(x.reshape(-1, x.shape[-1]), weight, bias).view(*x.shape[:-1], -1)


def use_linear(model: nn.Module) -> None:
    """Compute every nn.Linear of a model by `linear`; subclasses of nn.Linear stay."""
    for module in model.modules():
        if type(module) is nn.Linear:
            module.__class__ = Linear


def _product(x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """`linear` by oneDNN: x (M, K), weight (N, K), bias (N,) -> (M, N)."""
    if torch.is_grad_enabled() and any(t is not None and t.requires_grad for t in (x, weight, bias)):
        return _Product.apply(x, weight, bias)
    return _onednn(x, weight, bias)


class _Product(torch.autograd.Function):
    """The product and its gradients, which are products with gradients of their own."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        for_x, for_weight, _ = ctx.needs_input_grad
        ctx.save_for_backward(x if for_weight else None, weight if for_x else None)
        return _onednn(x, weight, bias)

    @staticmethod
    def backward(ctx: Any, dy: Tensor) -> tuple[Tensor | None, ...]:
        x, weight = ctx.saved_tensors
        multiply = F.linear if needs_dispatcher([dy]) else _product
        dx = dweight = dbias = None
        if weight is not None:
            dx = multiply(dy, weight.T)  # (M, K)
        if x is not None:  # oneDNN copies a transposed first factor, so the smaller one is first
            dweight = multiply(x.T, dy.T).T if x.shape[1] < dy.shape[1] else multiply(dy.T, x.T)  # (N, K)
        if ctx.needs_input_grad[2]:
            dbias = dy.sum(0)
        return dx, dweight, dbias


def _onednn(x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    """x (M, K), weight (N, K), bias (N,) -> (M, N). The operator is that of torch.compile; it has no gradient."""
    if not (weight.is_contiguous() or weight.T.is_contiguous()):
        weight = weight.contiguous()  # with gaps, oneDNN is hundreds of times slower
    if bias is not None:
        bias = bias.contiguous()  # the operator ignores its stride
    return torch.ops.mkldnn._linear_pointwise(x, weight, bias, "none", [], "")


def _for_onednn(x: Tensor, weight: Tensor, bias: Tensor | None) -> bool:
    """Whether oneDNN computes this product. The operator does not check its inputs."""
    return (
        not needs_dispatcher([x, weight])
        and x.numel() * len(weight) >= FEWEST_MULTIPLY_ADDS
        and x.numel() % (ROWS * x.shape[-1]) == 0
        and weight.shape[1:] == x.shape[-1:]
        and (bias is None or bias.shape == weight.shape[:1])
        and all(t is None or _is_plain(t) for t in (x, weight, bias))
        and onednn_is_faster()
        and bool(torch.backends.mkldnn.enabled)
        and not torch.is_autocast_enabled("cpu")
        and forward_ad._current_level < 0
    )


def _is_plain(x: Tensor) -> bool:
    return x.dtype is torch.float32 and x.device.type == "cpu" and x.layout is torch.strided


@cache
def onednn_is_faster() -> bool:
    """Whether this processor has AVX-512, is not Intel's, and PyTorch contains oneDNN. On Linux only."""
    return (
        "avx512" in cpu.instruction_sets()
        and "GenuineIntel" not in cpu.description()[0]
        and torch.backends.mkldnn.is_available()
        and hasattr(torch.ops.mkldnn, "_linear_pointwise")
    )
