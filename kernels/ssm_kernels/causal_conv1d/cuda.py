"""The causal convolution in CUDA C++, compiled for one width, one dtype and one GPU at first use."""

from __future__ import annotations

import ctypes
from collections.abc import Mapping, Sequence

import torch
from torch import Tensor

from ssm_kernels.causal_conv1d.inputs import Inputs, Options
from ssm_kernels.native import cuda as native

SOURCE = "causal_conv1d/causal_conv1d.cu"
THREADS_AT_ONCE = 1024  # smallest number per multiprocessor
SHORTEST_RUN, LONGEST_RUN = 8, 256  # steps per thread: short runs read many inputs twice, long runs give few threads


class Convolution(ctypes.Structure):
    """The same struct as `Convolution` of causal_conv1d.cuh."""

    _fields_ = [
        *((name, ctypes.c_void_p) for name in ("x", "weight", "bias", "state", "resets", "y", "after")),
        *((name, ctypes.c_void_p) for name in ("dy", "dafter", "dx", "dweight", "dbias", "dstate")),
        *((name, ctypes.c_int64) for name in ("batch", "length", "channels", "runs", "run_length", "silu")),
    ]


def unavailable(device: torch.device) -> str | None:
    """The reason why it cannot run on this device (no GPU, or no nvcc); None if it can."""
    return native.why_not(device)


def unsuited(inputs: Inputs) -> str | None:
    """The reason why it does not support these inputs; None if it does."""
    if any(x is not None and x.dtype == torch.float64 for x in inputs):
        return "computes in float32 and takes no float64"
    return None


def forward(inputs: Inputs, options: Options, save: bool) -> tuple[Tensor, Tensor, Tensor]:
    """y in the dtype of x, and the state after it in float32."""
    packed = _packed(inputs)
    batch, _, channels = packed.x.shape
    y = torch.empty_like(packed.x)
    after = native.empty(y.device, batch, packed.weight.shape[1] - 1, channels)
    _launch("causal_conv1d_forward", packed, options, _runs(packed), {"y": y, "after": after})
    return y, after, after.new_empty(0)


def backward(
    dy: Tensor, dafter: Tensor, saved: Tensor, y: Tensor | None, inputs: Inputs, options: Options
) -> Sequence[Tensor | None]:
    """One gradient per field of Inputs. Gradients of the weights and the state are float32."""
    packed = _packed(inputs)
    x, K = packed.x, packed.weight.shape[1]
    batch, _, channels = x.shape
    runs, run_length = _runs(packed)
    dx, dstate = torch.empty_like(x), native.empty(x.device, batch, K - 1, channels)
    dweight = native.empty(x.device, batch * runs, K, channels)
    dbias = native.empty(x.device, batch * runs, channels)
    tensors = {
        "dy": native.packed(dy, x.dtype),
        "dafter": native.packed(dafter, torch.float32),
        "dx": dx,
        "dweight": dweight,
        "dbias": dbias,
        "dstate": dstate,
    }
    _launch("causal_conv1d_backward", packed, options, (runs, run_length), tensors)
    return (
        dx,
        dweight.sum(0).t().contiguous(),  # partial sums, in a fixed order
        None if inputs.bias is None else dbias.sum(0),
        None if inputs.state is None else dstate,
        None,
    )


def _packed(inputs: Inputs) -> Inputs:
    """Contiguous inputs: x in its own dtype, the rest in float32."""
    x, weight, bias, state, resets = inputs
    return Inputs(
        native.packed(x, x.dtype),
        native.packed(weight, torch.float32),
        None if bias is None else native.packed(bias, torch.float32),
        None if state is None else native.packed(state, torch.float32),
        None if resets is None else resets.contiguous(),
    )


def _runs(inputs: Inputs) -> tuple[int, int]:
    """Number and length of the runs of a sequence, so that all multiprocessors are busy."""
    batch, length, channels = inputs.x.shape
    threads = native.multiprocessors(inputs.x.device) * THREADS_AT_ONCE
    packs = channels // 4 if channels % 4 == 0 else channels
    run_length = min(max(batch * length * packs // threads, SHORTEST_RUN), LONGEST_RUN)
    return -(-length // run_length), run_length


def _launch(
    name: str, inputs: Inputs, options: Options, runs: tuple[int, int], others: Mapping[str, Tensor | None]
) -> None:
    batch, length, channels = inputs.x.shape
    defines = (f"ELEMENT={native.ELEMENTS[inputs.x.dtype]}", f"TAPS={inputs.weight.shape[1]}")
    library = native.load(SOURCE, defines, inputs.x.device)
    pointers = {key: native.address(x) for key, x in {**inputs._asdict(), **others}.items()}
    convolution = Convolution(
        **pointers,
        batch=batch,
        length=length,
        channels=channels,
        runs=runs[0],
        run_length=runs[1],
        silu=options.activation == "silu",
    )
    native.call(library, name, convolution, "causal_conv1d_error", inputs.x.device)
