"""The selective scan in CUDA C++, compiled for one N, one dtype and one GPU at first use. See selective_scan.cu."""

from __future__ import annotations

import ctypes
from collections.abc import Mapping, Sequence
from functools import partial

import torch
from torch import Tensor

from ssm_kernels.native import cuda as native
from ssm_kernels.selective_scan.inputs import Inputs, Options

SOURCE = "selective_scan/selective_scan.cu"
LARGEST_N = 2048
SHARED_BYTES = 163 * 1024  # that a block can have on sm_80
# Blocks that one multiprocessor runs at once, given their registers. With fewer blocks than ENOUGH times the number of
# multiprocessors, the sequence is cut into segments. This costs another pass, which finds their initial states.
FORWARD_BLOCKS, BACKWARD_BLOCKS = 3, 2
FORWARD_ENOUGH, BACKWARD_ENOUGH = 0.75, 1.0


class Scan(ctypes.Structure):
    """The same struct as `Scan` of geometry.cuh."""

    _fields_ = [
        *((name, ctypes.c_void_p) for name in ("u", "dt", "z", "B", "C", "A", "D", "dt_bias", "h0", "resets")),
        *((name, ctypes.c_void_p) for name in ("y", "hT", "saved", "decays", "states")),
        *((name, ctypes.c_void_p) for name in ("dy", "dhT", "du", "ddt", "dz", "dB", "dC", "dA", "dD", "ddt_bias")),
        ("dh0", ctypes.c_void_p),
        *((name, ctypes.c_int64) for name in ("batch", "length", "channels", "segments", "segment_length")),
    ]


def unavailable(device: torch.device) -> str | None:
    """The reason why it cannot run on this device (no GPU, or no nvcc); None if it can."""
    return native.why_not(device)


def unsuited(inputs: Inputs) -> str | None:
    """The reason why it does not support these inputs; None if it does."""
    if any(x is not None and x.dtype == torch.float64 for x in inputs):
        return "computes in float32 and takes no float64"
    N = inputs.A.shape[1]
    if N > LARGEST_N:
        return f"takes N up to {LARGEST_N}, got {N}"
    large = 64 < N <= 128 or N > 256  # for other N, the backward pass needs less than 99 KiB: see backward_shared
    if large and native.shared_memory(inputs.u.device) < SHARED_BYTES:
        return f"needs {SHARED_BYTES:,} bytes of shared memory per block for N = {N}"
    return None


def saved_shape(inputs: Inputs, options: Options) -> tuple[int, ...]:
    """The states before every tile of a few steps, (B, tiles, D, N)."""
    batch, length, channels = inputs.u.shape
    N = inputs.A.shape[1]
    return batch, -(-length // _tile(N)), channels, N


def forward(inputs: Inputs, options: Options, save: bool) -> tuple[Tensor, Tensor, Tensor]:
    """y in the dtype of u, hT in float32, and the states for the backward pass."""
    packed = _packed(inputs)
    u = packed.u
    batch, _, channels = u.shape
    library = _library(packed, options)
    segments, segment_length = _segments(packed, library, FORWARD_BLOCKS, FORWARD_ENOUGH)
    saved = native.empty(u.device, *(saved_shape(inputs, options) if save else (0,)))
    y, hT = torch.empty_like(u), native.empty(u.device, batch, channels, inputs.A.shape[1])
    outputs = {"y": y, "hT": hT, "saved": saved if save else None}
    _launch(library, "selective_scan_forward", packed, segments, segment_length, outputs)
    return y.to(inputs.u.dtype), hT, saved


def backward(
    dy: Tensor, dhT: Tensor, saved: Tensor, y: Tensor | None, inputs: Inputs, options: Options
) -> Sequence[Tensor | None]:
    """One gradient per field of Inputs. Gradients of B, C and the parameters are float32."""
    packed = _packed(inputs)
    u = packed.u
    batch, length, channels = u.shape
    N = inputs.A.shape[1]
    library = _library(packed, options)
    segments, segment_length = _segments(packed, library, BACKWARD_BLOCKS, BACKWARD_ENOUGH)
    channel_blocks = -(-channels // library.selective_scan_block_channels())
    new = partial(native.empty, u.device)
    gradients = {
        "du": torch.empty_like(u),
        "ddt": torch.empty_like(u),
        "dz": torch.empty_like(u if packed.z is not None else u[:0]),
        "dB": new(channel_blocks, batch, length, N),
        "dC": new(channel_blocks, batch, length, N),
        "dA": new(batch * segments, channels, N),
        "dD": new(batch * segments, channels),
        "ddt_bias": new(batch * segments, channels),
        "dh0": new(batch, channels, N),
    }
    given = {"dy": native.packed(dy, u.dtype), "dhT": native.packed(dhT, torch.float32), "saved": saved}
    _launch(library, "selective_scan_backward", packed, segments, segment_length, {**given, **gradients})
    for name in ("dB", "dC", "dA", "dD", "ddt_bias"):  # partial sums, in a fixed order
        gradients[name] = gradients[name].sum(0)
    order = ("du", "ddt", "dA", "dB", "dC", "dD", "ddt_bias", "dz", "dh0")
    present = [x is not None for x in (*inputs[:5], inputs.D, inputs.dt_bias, inputs.z, inputs.h0)]
    return [*(gradients[name] if there else None for name, there in zip(order, present, strict=True)), None]


def _packed(inputs: Inputs) -> Inputs:
    """Contiguous inputs: sequences in one dtype (their own if it is the same, else float32), the rest in float32."""
    sequences = ("u", "dt", "z", "B", "C")
    dtypes = {x.dtype for x in (getattr(inputs, name) for name in sequences) if x is not None}
    dtype = dtypes.pop() if len(dtypes) == 1 else torch.float32
    wanted = {name: dtype if name in sequences else torch.float32 for name in Inputs._fields} | {"resets": torch.bool}
    present = {name: x for name, x in inputs._asdict().items() if x is not None}
    return inputs._replace(**{name: native.packed(x, wanted[name]) for name, x in present.items()})


def _library(inputs: Inputs, options: Options) -> ctypes.CDLL:
    softplus = "true" if options.dt_softplus else "false"
    defines = (f"ELEMENT={native.ELEMENTS[inputs.u.dtype]}", f"STATES={inputs.A.shape[1]}", f"SOFTPLUS={softplus}")
    return native.load(SOURCE, defines, inputs.u.device)


def _tile(N: int) -> int:
    """Steps between saved states: TILE of geometry.cuh."""
    return 16 if N <= 512 else 8 if N <= 1024 else 4


def _segments(inputs: Inputs, library: ctypes.CDLL, at_once: int, enough: float) -> tuple[int, int]:
    """Number and length of the segments of a sequence, so that all multiprocessors are busy."""
    batch, length, channels = inputs.u.shape
    blocks = batch * -(-channels // library.selective_scan_block_channels())
    tile = _tile(inputs.A.shape[1])
    tiles = -(-length // tile)
    processors = native.multiprocessors(inputs.u.device)
    wanted = 1 if blocks >= enough * processors else max(1, at_once * processors // blocks)
    tiles_each = -(-tiles // min(wanted, tiles))
    return -(-tiles // tiles_each), tiles_each * tile


def _launch(
    library: ctypes.CDLL,
    name: str,
    inputs: Inputs,
    segments: int,
    segment_length: int,
    others: Mapping[str, Tensor | None],
) -> None:
    batch, length, channels = inputs.u.shape
    between = None
    if segments > 1:
        shape = (2, batch, segments, channels, inputs.A.shape[1])
        between = torch.empty(shape, dtype=torch.float32, device=inputs.u.device)
        others = {**others, "decays": between[0], "states": between[1]}
    pointers = {key: native.address(x) for key, x in {**inputs._asdict(), **others}.items()}
    scan = Scan(
        **pointers, batch=batch, length=length, channels=channels, segments=segments, segment_length=segment_length
    )
    native.call(library, name, scan, "selective_scan_error", inputs.u.device)
