# mypy: disable-error-code="no-untyped-def"
"""Measure the limits of a GPU: rates of multiply-adds, exponentials, matrix products and memory.

Each rate is that of the fastest of a few runs. `multiply_adds` and `exponentials` run independent chains in registers
and do nothing else. The rate of matrix products is that of a large bfloat16 product in torch, on tensor cores. The rate
of memory is that of a copy, which reads and writes.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
import triton
import triton.language as tl

from ssm_kernels.native.triton_launch import launch
from ssm_kernels.timing import seconds_of

WIDTH = 1024  # numbers of a program: eight independent chains in each of 128 threads
PROGRAMS = 132 * 64  # enough for several programs on each multiprocessor
ROUNDS = 20_000  # of a program: a few milliseconds on a GPU
FAR = 2**30  # bytes that are copied
SIDE = 8192  # of a square matrix


@triton.jit
def multiply_adds_kernel(out, rounds, WIDTH: tl.constexpr):
    """x -> x / 2 + 1, `rounds` times."""
    i = tl.arange(0, WIDTH)
    x = i.to(tl.float32)
    for _ in range(rounds):
        x = x * 0.5 + 1.0
    tl.store(out + tl.program_id(0) * WIDTH + i, x)


@triton.jit
def exponentials_kernel(out, rounds, WIDTH: tl.constexpr):
    """x -> 2^(-x), `rounds` times; 2^x is what a GPU has in hardware."""
    i = tl.arange(0, WIDTH)
    x = i.to(tl.float32) / WIDTH
    for _ in range(rounds):
        x = tl.exp2(-x)
    tl.store(out + tl.program_id(0) * WIDTH + i, x)


def multiply_adds(device: torch.device, programs: int = PROGRAMS, rounds: int = ROUNDS) -> float:
    """Float32 multiply-adds per second outside of tensor cores."""
    return _rate(multiply_adds_kernel, device, programs, rounds)


def exponentials(device: torch.device, programs: int = PROGRAMS, rounds: int = ROUNDS) -> float:
    """Float32 exponentials per second."""
    return _rate(exponentials_kernel, device, programs, rounds)


def matrix_products(device: torch.device, side: int = SIDE) -> float:
    """Multiply-adds per second of a product of two square bfloat16 matrices, as measured with random numbers."""
    a, b = (torch.randn(side, side, device=device).bfloat16() for _ in range(2))
    return side**3 / _best(lambda: a @ b, device)


def copy(device: torch.device, touched: int = FAR) -> float:
    """Bytes read and written per second by a copy of `touched` bytes."""
    here, there = (torch.zeros(touched, dtype=torch.uint8, device=device) for _ in range(2))
    return 2 * touched / _best(lambda: there.copy_(here), device)


def _rate(kernel: object, device: torch.device, programs: int, rounds: int) -> float:
    out = torch.empty(programs * WIDTH, device=device)
    return programs * WIDTH * rounds / _best(lambda: launch(kernel, (programs,), out, rounds, WIDTH=WIDTH), device)


def _best(run: Callable[[], object], device: torch.device) -> float:
    """Seconds of the fastest of ten calls."""
    run()  # compiles and warms up
    return min(seconds_of(run, device) for _ in range(10))
