"""Common code of the Triton backends: check whether they can run, and launch kernels.

Launch parameters depend only on shapes, without autotuning. So equal calls run equal code and give equal bits.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from functools import cache
from importlib import metadata
from typing import Any, NamedTuple

import torch
import triton
import triton.language as tl
from torch import Tensor

INTERPRETED = os.environ.get("TRITON_INTERPRET") == "1"  # must be set before kernels are imported
FLOAT32 = "tf32x3"  # matrix products of float32 tiles: three TF32 products, as exact as float32
HALF = "bf16x2"  # products of half-precision tiles whose results are rounded to half precision
HALF_STATE = "bf16x3"  # the same, for results that are added to a state
PROGRAMS = 512  # programs that fill a GPU of about 130 multiprocessors; with fewer, sequences are cut into segments
MOST_PROGRAMS = 65_535  # along the second and third axis of a grid
MIN_STEPS = 256  # shortest segment that is worth its overhead
SAFE_WGMMA = (3, 9)  # the first version of Triton whose wgmma we trust
# The first version of Triton whose interpreter runs with NumPy 2.4: before, it takes arrays of one number for numbers.
INTERPRETS, NEW_NUMPY = (3, 7), (2, 4)
TILES = 1.0  # factor of the largest tile size; only the benchmark of launch rules changes it

log = logging.getLogger("ssm_kernels")


class Launch(NamedTuple):
    """A kernel and the arguments of one call."""

    kernel: Any
    grid: tuple[int, ...]
    arguments: tuple[Any, ...]
    constants: dict[str, Any]
    num_warps: int
    num_stages: int

    def start(self) -> None:
        """Start the kernel on the device of its first tensor."""
        options = {"num_warps": self.num_warps, "num_stages": self.num_stages, "enable_fp_fusion": True}
        first = next(x for x in self.arguments if isinstance(x, Tensor))
        if first.is_cuda:
            avoid_unsafe_products(first.device)
        with torch.cuda.device(first.device) if first.is_cuda else nullcontext():
            self.kernel[self.grid](*self.arguments, **self.constants, **options)


@cache
def avoid_unsafe_products(device: torch.device) -> None:
    """Compile matrix products of this process without instructions that the installed Triton does not use safely.

    - Hopper, wgmma: before 3.9, programs of more than four warps can overwrite shared memory that is still read
      (triton issue 11047). In 3.4 to 3.7.0, products with transposed results of products are wrong (fla issue 640).
    - Blackwell, tcgen05: several products that are added to one result can be wrong (triton issues 10821 and 10993).

    The older instructions are slower. A user's own setting of these variables stays. On Hopper, another defect stays:
    ptxas before 13.1 can compile products that update a state wrongly (fla pull request 1262); 3.9 uses a newer one.
    """
    major, minor = torch.cuda.get_device_capability(device)
    if major == 9 and _numbers(triton.__version__) < SAFE_WGMMA:
        variable = "DISABLE_MMA_V3"
    elif major in (10, 11):
        variable = "DISABLE_MMA_V5"
    else:
        return
    if variable not in os.environ:
        os.environ[variable] = "1"
        log.warning(
            "triton %s: %s=1 is set, because its newest matrix instructions can give wrong results on sm_%d%d; "
            "products are slower, also in other Triton kernels of this process%s",
            *(triton.__version__, variable, major, minor),
            "; Triton 3.9 or later avoids this and another defect" if major == 9 else "",
        )


_start: Callable[[Launch], None] = Launch.start


@contextmanager
def launching(start: Callable[[Launch], None]) -> Iterator[None]:
    """Pass every launch inside this block to `start`, which can change it, or not start it at all.

    Tensors of launches that do not start may be on the device "meta". Only one thread may use this at a time.
    """
    global _start
    before, _start = _start, start
    try:
        yield
    finally:
        _start = before


def launch(
    kernel: Any, grid: tuple[int, ...], *arguments: Any, num_warps: int = 4, num_stages: int = 2, **constants: Any
) -> None:
    """Start a kernel on the device of its first tensor.

    Raises:
        ValueError: the grid is larger than a GPU allows: too many sequences, or chunks of a sequence.
    """
    if max(grid[1:], default=0) > MOST_PROGRAMS:
        raise ValueError(
            f"{kernel.__name__}: {max(grid[1:]):,} sequences or chunks in one call, at most {MOST_PROGRAMS:,}; "
            "split the batch or the sequence, or use backend='torch'"
        )
    _start(Launch(kernel, grid, arguments, constants, num_warps, num_stages))


def unavailable(device: torch.device) -> str | None:
    """The reason why Triton cannot run on a device; None if it can.

    It needs an NVIDIA GPU with bfloat16, or its interpreter for CPU tensors.
    """
    if device.type == "cpu":
        return (
            _why_not_interpreted() if INTERPRETED else "it needs a CUDA device (or TRITON_INTERPRET=1: slow, for tests)"
        )
    if device.type != "cuda" or not torch.cuda.is_available() or torch.version.hip is not None:
        return "it needs a CUDA device"
    major, minor = torch.cuda.get_device_capability(device)
    return None if major >= 8 else f"it needs compute capability 8.0, this device has {major}.{minor}"


def _why_not_interpreted() -> str | None:
    """The reason why Triton's interpreter cannot run; None if it can."""
    numpy = metadata.version("numpy")  # which the interpreter imports; kernels on a GPU do not need it
    if _numbers(triton.__version__) < INTERPRETS and _numbers(numpy) >= NEW_NUMPY:
        return f"the interpreter of Triton {triton.__version__} needs NumPy before 2.4; this is {numpy}"
    return None


def _numbers(version: str) -> tuple[int, ...]:
    """The first two numbers of a version."""
    return tuple(int(part) for part in version.split(".")[:2])


def tile(size: int, largest: int, smallest: int = 16) -> int:
    """The smallest power of two that is at least `size`, limited to the given bounds."""
    return max(smallest, min(int(largest * TILES), triton.next_power_of_2(size)))


def segments(programs: int, length: int, step: int) -> tuple[int, int]:
    """Cut a sequence so that its programs fill a GPU: (number of segments, blocks per segment).

    Args:
        programs: parallel programs for one segment.
        length: tokens in the sequence.
        step: tokens per block.
    """
    blocks = triton.cdiv(length, step)
    wanted = max(1, min(triton.cdiv(PROGRAMS, programs), length // MIN_STEPS))
    each = triton.cdiv(blocks, wanted)
    return triton.cdiv(blocks, each), each


def rows(x: Tensor) -> tuple[Tensor, int]:
    """A tensor (B, T, ...) and its stride between steps. A slice of a wider tensor is not copied."""
    batch, length = x.shape[:2]
    step = x.stride(1) if length > 1 else x.stride(0)
    if x[0, 0].is_contiguous() and (batch == 1 or x.stride(0) == length * step):
        return x, step
    x = x.contiguous()
    return x, x.stride(1) if length > 1 else x.stride(0)


def all_rows(*tensors: Tensor | None) -> tuple[list[Any], tuple[int, ...]]:
    """`rows` of every tensor, and all strides between steps; 0 for None."""
    pairs = [(None, 0) if x is None else rows(x) for x in tensors]
    return [x for x, _ in pairs], tuple(row for _, row in pairs)


def plain(x: Tensor | None) -> Tensor | None:
    """The tensor, contiguous; bools become bytes."""
    if x is None:
        return None
    x = x.contiguous()
    return x.view(torch.uint8) if x.dtype == torch.bool else x


def real_dtype(dtype: torch.dtype) -> tl.dtype:
    """Triton's name of a compute dtype. For a complex dtype it is that of its real part."""
    return tl.float64 if dtype in (torch.float64, torch.complex128) else tl.float32
