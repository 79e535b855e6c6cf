# mypy: disable-error-code="no-untyped-def,misc"
"""Device functions that the scans share: loads, matrix products, and the recurrence over segments."""

from __future__ import annotations

from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

from ssm_kernels.native import triton_launch
from ssm_kernels.native.triton_launch import launch

INTERPRETED = tl.constexpr(triton_launch.INTERPRETED)  # its bfloat16 products are wrong, so it uses float32


@triton.jit
def load_rows(x, row, width, start, i, row_in, i_in):
    """(rows, elements): elements start + i of the given rows of x with stride `width`; 0 outside the masks."""
    return tl.load(x + row[:, None] * width + start + i[None, :], row_in[:, None] & i_in[None, :], 0.0)


@triton.jit
def product(a, b, acc, PRECISION: tl.constexpr):
    """acc + a @ b, summed in float32 or better.

    PRECISION "bf16x2" or "bf16x3": a float32 operand is split into two or three bfloat16 numbers (16 or 24 bits), and
    negligible products are dropped. A bfloat16 operand is not split. "tf32x3" and "ieee" are Triton's own modes.
    """
    if PRECISION == "bf16x2" or PRECISION == "bf16x3":
        a_0, b_0 = a.to(tl.bfloat16), b.to(tl.bfloat16)
        acc = _bfloat16_product(a_0, b_0, acc)
        if a.dtype != tl.bfloat16:
            a_rest = a.to(tl.float32) - a_0.to(tl.float32)
            a_1 = a_rest.to(tl.bfloat16)
            acc = _bfloat16_product(a_1, b_0, acc)
            if PRECISION == "bf16x3":
                acc = _bfloat16_product((a_rest - a_1.to(tl.float32)).to(tl.bfloat16), b_0, acc)
        if b.dtype != tl.bfloat16:
            b_rest = b.to(tl.float32) - b_0.to(tl.float32)
            b_1 = b_rest.to(tl.bfloat16)
            acc = _bfloat16_product(a_0, b_1, acc)
            if PRECISION == "bf16x3":
                acc = _bfloat16_product(a_0, (b_rest - b_1.to(tl.float32)).to(tl.bfloat16), acc)
                if a.dtype != tl.bfloat16:
                    acc = _bfloat16_product(a_1, b_1, acc)
        return acc
    else:
        return tl.dot(a.to(acc.dtype), b.to(acc.dtype), acc, input_precision=PRECISION, out_dtype=acc.dtype)


@triton.jit
def _bfloat16_product(a, b, acc):
    if INTERPRETED:
        return tl.dot(a.to(tl.float32), b.to(tl.float32), acc, input_precision="ieee")
    else:
        return tl.dot(a, b, acc)


@triton.jit
def linear(a1, b1, a2, b2):
    """Compose x -> a1 x + b1 with x -> a2 x + b2 (applied second)."""
    return a1 * a2, a2 * b1 + b2


@triton.jit
def linear_split(a1, m1, b1, a2, m2, b2):
    """Compose x -> a x + m + b, where m excludes the b of the last step."""
    return a1 * a2, a2 * (m1 + b1) + m2, b2


@triton.jit
def complex_linear(a1r, a1i, b1r, b1i, a2r, a2i, b2r, b2i):
    """`linear` for complex numbers."""
    return (
        a1r * a2r - a1i * a2i,
        a1r * a2i + a1i * a2r,
        a2r * b1r - a2i * b1i + b2r,
        a2r * b1i + a2i * b1r + b2i,
    )


@triton.jit
def carry_kernel(
    total, local, start, entering, size, count, inner, REVERSE: tl.constexpr, COMPLEX: tl.constexpr, BLOCK: tl.constexpr
):
    """entering[s + 1] = total[s] * entering[s] + local[s] with entering[0] = start; BLOCK elements per program."""
    i = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    inside = i < size
    width = 2 if COMPLEX else 1
    step = tl.cast(size, tl.int64) * (-width if REVERSE else width)
    total_step = step // inner
    at = width * i  # position in the state of the first segment, then of the next ones
    total_at = width * (i // inner)
    real = tl.zeros([BLOCK], local.dtype.element_ty)
    imag = tl.zeros([BLOCK], local.dtype.element_ty)
    if start is not None:
        real += tl.load(start + at, inside, 0.0)
        if COMPLEX:
            imag += tl.load(start + at + 1, inside, 0.0)
    if REVERSE:
        at -= (count - 1) * step
        total_at -= (count - 1) * total_step
    for _ in range(count):
        tl.store(entering + at, real, inside)
        d, added = tl.load(total + total_at, inside, 0.0), tl.load(local + at, inside, 0.0)
        if COMPLEX:
            tl.store(entering + at + 1, imag, inside)
            e, added_imag = tl.load(total + total_at + 1, inside, 0.0), tl.load(local + at + 1, inside, 0.0)
            real, imag = d * real - e * imag + added, d * imag + e * real + added_imag
        else:
            real = d * real + added
        at += step
        total_at += total_step


def carry(total: Tensor, local: Tensor, start: Tensor | None, reverse: bool) -> Tensor:
    """The initial state of every segment, where a segment maps a state to total * state + local.

    Args:
        total: (S, ...), the factor of each segment; trailing axes of `local` may be missing.
        local: (S, ...), the final state of each segment if it starts from zero.
        start: initial state of the first segment (of the last one if `reverse`); None is zero.
        reverse: go from the last segment to the first.

    Returns:
        The initial states, shaped like `local`.
    """
    entering = torch.empty_like(local)
    paired: Any = torch.view_as_real if local.is_complex() else lambda x: x
    size, inner = local[0].numel(), local.numel() // total.numel()
    start = None if start is None else paired(start.to(local.dtype).contiguous())
    launch(
        carry_kernel,
        (triton.cdiv(size, 256),),
        paired(total),
        paired(local),
        start,
        paired(entering),
        size,
        local.shape[0],
        inner,
        REVERSE=reverse,
        COMPLEX=local.is_complex(),
        BLOCK=256,
    )
    return entering
