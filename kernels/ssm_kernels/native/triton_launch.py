"""What every Triton backend needs around its kernels: whether it can run, how it is launched, and what was launched.

Launch parameters follow from shapes alone (no autotuning): the same call is the same code, and the same bits.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

import torch
import triton
import triton.language as tl
from torch import Tensor

INTERPRETED = os.environ.get("TRITON_INTERPRET") == "1"  # read where kernels are defined: set it before the import
FLOAT32 = "tf32x3"  # matrix products of float32 tiles: three TF32 products, as exact as float32
HALF = "bf16x2"  # of half-precision tiles and what is computed from them, rounded to half precision in the end
HALF_STATE = "bf16x3"  # the same where it adds to a state
PROGRAMS = 512  # enough to fill a GPU of some 130 multiprocessors: fewer, and a long sequence is cut into segments
MIN_STEPS = 256  # a segment shorter than this costs more than it hides


class Launch(NamedTuple):
    """A kernel with the arguments it was called with."""

    kernel: Any
    grid: tuple[int, ...]
    arguments: tuple[Any, ...]
    constants: dict[str, Any]
    num_warps: int
    num_stages: int


_recorded: list[Launch] | None = None


@contextmanager
def recording() -> Iterator[list[Launch]]:
    """Within this block launches are collected instead of run, so that they can be compiled ahead of time.

    Tensors may be on the device "meta". Not for use by several threads at once.
    """
    global _recorded
    _recorded = []
    try:
        yield _recorded
    finally:
        _recorded = None


def launch(
    kernel: Any, grid: tuple[int, ...], *arguments: Any, num_warps: int = 4, num_stages: int = 2, **constants: Any
) -> None:
    """Start a kernel on the device of its first tensor."""
    if _recorded is not None:
        _recorded.append(Launch(kernel, grid, arguments, constants, num_warps, num_stages))
        return
    options = {"num_warps": num_warps, "num_stages": num_stages, "enable_fp_fusion": True}
    first = next(x for x in arguments if isinstance(x, Tensor))
    if first.is_cuda:
        with torch.cuda.device(first.device):
            kernel[grid](*arguments, **constants, **options)
    else:
        kernel[grid](*arguments, **constants, **options)


def unavailable(device: torch.device) -> str | None:
    """Why Triton cannot run there: it needs an NVIDIA GPU with bfloat16, or its interpreter for tensors of the CPU."""
    if device.type == "cpu":
        return None if INTERPRETED else "it needs a CUDA device (or TRITON_INTERPRET=1: slow, for tests)"
    if device.type != "cuda" or not torch.cuda.is_available() or torch.version.hip is not None:
        return "it needs a CUDA device"
    major, minor = torch.cuda.get_device_capability(device)
    return None if major >= 8 else f"it needs compute capability 8.0, this device has {major}.{minor}"


def tile(size: int, largest: int, smallest: int = 16) -> int:
    """The power of two that covers `size`, kept between two bounds."""
    return max(smallest, min(largest, triton.next_power_of_2(size)))


def segments(programs: int, length: int, step: int) -> tuple[int, int]:
    """How a sequence is cut so that a GPU is full: (segments, blocks a segment), a block being `step` tokens.

    Args:
        programs: programs that run side by side for one segment.
        length: tokens in the sequence.
        step: tokens a block.
    """
    blocks = triton.cdiv(length, step)
    wanted = max(1, min(triton.cdiv(PROGRAMS, programs), length // MIN_STEPS))
    each = triton.cdiv(blocks, wanted)
    return triton.cdiv(blocks, each), each


def rows(x: Tensor) -> tuple[Tensor, int]:
    """A tensor (B, T, ...) and the distance from step to step: a slice of a wider tensor is read where it is."""
    batch, length = x.shape[:2]
    step = x.stride(1) if length > 1 else x.stride(0)
    if x[0, 0].is_contiguous() and (batch == 1 or x.stride(0) == length * step):
        return x, step
    x = x.contiguous()
    return x, x.stride(1) if length > 1 else x.stride(0)


def all_rows(*tensors: Tensor | None) -> tuple[list[Any], tuple[int, ...]]:
    """`rows` of every tensor, and the distances from step to step together; 0 where there is no tensor."""
    pairs = [(None, 0) if x is None else rows(x) for x in tensors]
    return [x for x, _ in pairs], tuple(row for _, row in pairs)


def plain(x: Tensor | None) -> Tensor | None:
    """Contiguous, and bytes where it holds bools."""
    if x is None:
        return None
    x = x.contiguous()
    return x.view(torch.uint8) if x.dtype == torch.bool else x


def real_dtype(dtype: torch.dtype) -> tl.dtype:
    """Triton's name for a compute dtype, or for the parts of a complex one."""
    return tl.float64 if dtype in (torch.float64, torch.complex128) else tl.float32
