"""The causal convolution in PyTorch: one pass per tap over blocks of steps, and a hand-written backward pass.

Nothing is stored for the backward pass, which computes the values before the activation again.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import torch
import torch.nn.functional as F
from torch import Tensor

from ssm_kernels.causal_conv1d.inputs import Inputs, Options
from ssm_kernels.dtypes import compute_dtype

# Elements that are processed together: as many as fit into a cache, or as many as fill a GPU.
BLOCK = {"cpu": 1 << 17}
BLOCK_ELSEWHERE = 1 << 24


def forward(inputs: Inputs, options: Options, save: bool) -> tuple[Tensor, Tensor, Tensor]:
    """y_t = act(bias + sum_i w_i x_{t-K+1+i})."""
    x, weight, bias, state, resets = inputs
    dtype, K = compute_dtype(*inputs), weight.shape[1]
    taps, age = weight.to(dtype), _age(resets)
    bias = None if bias is None else bias.to(dtype)
    y = torch.empty(x.shape, dtype=x.dtype, device=x.device)
    for steps in _blocks(x):
        window = _window(x, state, steps, K, dtype)
        out = _before_activation(window, taps, bias, _hidden(age, steps, K))
        y[:, steps] = F.silu(out) if options.activation == "silu" else out
    after = _window(x, state, slice(x.shape[1], x.shape[1]), K, dtype)  # (B, K - 1, D)
    after = after.clone() if age is None else after.masked_fill(_forgotten(age, K), 0)
    return y, after, after.new_empty(0)


def backward(
    dy: Tensor, dstate: Tensor, saved: Tensor, y: Tensor | None, inputs: Inputs, options: Options
) -> Sequence[Tensor | None]:
    """Gradients in the compute dtype."""
    x, weight, bias, state, resets = inputs
    dtype, (B, T, D), K = saved.dtype, x.shape, weight.shape[1]
    taps, age = weight.to(dtype), _age(resets)
    bias = None if bias is None else bias.to(dtype)
    dpadded = torch.zeros(B, K - 1 + T, D, dtype=dtype, device=x.device)  # of the state before, then of x
    dpadded[:, T:] = dstate if age is None else dstate.masked_fill(_forgotten(age, K), 0)
    dtaps, dbias = dpadded.new_zeros(K, D), dpadded.new_zeros(D)
    for steps in _blocks(x):
        window, hidden = _window(x, state, steps, K, dtype), _hidden(age, steps, K)
        dout = dy[:, steps].to(dtype)  # (B, l, D)
        if options.activation == "silu":
            dout = torch.ops.aten.silu_backward(dout, _before_activation(window, taps, bias, hidden))
        dbias += dout.sum((0, 1))
        length = dout.shape[1]
        for i in range(K):
            masked, tap = _shown(dout, hidden, i), _shown(window[:, i : i + length], hidden, i)  # (B, l, D)
            dpadded[:, steps.start + i : steps.stop + i].addcmul_(masked, taps[:, i])
            dtaps[i] += (masked * tap).sum((0, 1))
    dx, dbefore = dpadded[:, K - 1 :].clone(), dpadded[:, : K - 1].clone()
    return dx, dtaps.t().contiguous(), dbias, dbefore, None


def _blocks(x: Tensor) -> Iterator[slice]:
    """Blocks of steps that are processed together."""
    B, T, D = x.shape
    length = max(1, BLOCK.get(x.device.type, BLOCK_ELSEWHERE) // (B * D))
    return (slice(start, min(start + length, T)) for start in range(0, T, length))


def _window(x: Tensor, state: Tensor | None, steps: slice, K: int, dtype: torch.dtype) -> Tensor:
    """The inputs of these steps and the K - 1 before them, (B, K - 1 + l, D)."""
    start = steps.start - (K - 1)
    if start >= 0:
        return x[:, start : steps.stop].to(dtype)
    before = x.new_zeros(x.shape[0], K - 1, x.shape[2]) if state is None else state
    return torch.cat([before[:, start:].to(dtype), x[:, : steps.stop].to(dtype)], 1)


def _before_activation(window: Tensor, taps: Tensor, bias: Tensor | None, hidden: Sequence[Tensor] | None) -> Tensor:
    """The sum over taps, (B, l, D)."""
    K = taps.shape[1]
    length = window.shape[1] - (K - 1)
    out = window[:, K - 1 :] * taps[:, K - 1]
    for i in range(K - 1):
        out.addcmul_(_shown(window[:, i : i + length], hidden, i), taps[:, i])
    return out if bias is None else out.add_(bias)


def _age(resets: Tensor | None) -> Tensor | None:
    """(B, T): steps since the last reset, 0 at a reset, and a huge number before the first reset."""
    if resets is None:
        return None
    step = torch.arange(resets.shape[1], device=resets.device)  # (T,)
    return step - torch.where(resets, step, -(1 << 40)).cummax(1).values


def _hidden(age: Tensor | None, steps: slice, K: int) -> list[Tensor] | None:
    """For each tap i (B, l, 1): whether its input, K - 1 - i steps back, lies before a reset."""
    return None if age is None else [age[:, steps, None] < K - 1 - i for i in range(K)]


def _shown(x: Tensor, hidden: Sequence[Tensor] | None, tap: int) -> Tensor:
    """x (B, l, D) where the tap may read it, else 0. A product would not work: 0 times infinity is NaN."""
    return x if hidden is None else x.masked_fill(hidden[tap], 0)


def _forgotten(age: Tensor, K: int) -> Tensor:
    """(B, K - 1, 1): whether each of the last K - 1 inputs comes before the last reset."""
    back = torch.arange(K - 2, -1, -1, device=age.device)  # (K - 1,): steps before the last
    return (age[:, -1:] < back).unsqueeze(-1)
