"""What a processor can do at most, measured: a kernel's time is judged by the time that these limits allow.

A kernel that does n multiply-adds of single numbers, and touches b bytes once each, takes at least
max(n / multiply_adds(), b / stream(b)) seconds. Both limits are measured by loops that do nothing else:

    multiply_adds  independent multiply-adds in registers, by the fastest instruction set of the processor, whichever
                   one the kernels are compiled for. A multiplication counts as a multiply-add: both need a multiplier.
    stream         the fastest of several streams (read, copy, add two arrays into a third; written through the caches
                   and past them) over as many bytes as the kernel touches. Data that fits into a cache is compared
                   with that cache, and data that fits in part with both. The streams run forward and backward in turn,
                   so that each sweep finds what the caches still hold.
"""

from __future__ import annotations

import ctypes
import time
from collections.abc import Callable

import torch

from ssm_kernels.native import instruction_sets, load
from ssm_kernels.native.call import address

SOURCE = "native/limits.cpp"
BLOCK = 1024  # floats that a stream handles at once, as in the C++
FLOAT = 4  # bytes
ROUNDS = 200_000  # of multiply-adds in a timed run: about a millisecond
MOVED = 2**25  # bytes of a timed stream, at least
STREAMS = ((1, False, False), (1, True, False), (1, True, True), (2, True, False), (2, True, True))
"""Arrays that are read, whether another one is written, and whether past the caches."""


def multiply_adds(threads: int = 1, seconds: float = 0.5) -> float:
    """Float32 multiply-adds a second of all threads together, in registers; a multiply-add is two operations.

    Args:
        seconds: time to measure, for each instruction set of the processor; the best run counts.

    Raises:
        NativeUnavailable: no C++ compiler.
    """
    return max(_multiply_adds(name, threads, seconds) for name in instruction_sets())


def stream(touched: int, threads: int = 1, seconds: float = 0.1) -> float:
    """Bytes read and written a second, by the fastest stream over arrays of `touched` bytes together.

    Args:
        seconds: time to measure, for each kind of stream; the best run counts.

    Raises:
        NativeUnavailable: no C++ compiler.
    """
    return max(_stream(touched, *kind, threads, seconds) for kind in STREAMS)


def best_seconds(run: Callable[[], object], seconds: float) -> float:
    """The shortest time of one call, of as many calls as fit into `seconds`; at least one."""
    run()  # caches, threads, and a clock that speeds up
    best, end = float("inf"), time.perf_counter() + seconds
    while time.perf_counter() < end or best == float("inf"):
        start = time.perf_counter()
        run()
        best = min(best, time.perf_counter() - start)
    return best


def multiply_add_loop(instructions: str) -> Callable[..., int]:
    """The C++ function `limits_multiply_adds`, compiled for one of `instruction_sets()`."""
    function = load(SOURCE, instructions).limits_multiply_adds
    function.argtypes, function.restype = [ctypes.c_int64, ctypes.c_void_p, ctypes.c_int64], ctypes.c_int64
    return function


def stream_loop() -> Callable[..., None]:
    """The C++ function `limits_stream`, compiled for the best instruction set."""
    function = load(SOURCE, instruction_sets()[0]).limits_stream
    function.argtypes, function.restype = [ctypes.c_void_p] * 4 + [ctypes.c_int64] * 4, None
    return function


def _multiply_adds(instructions: str, threads: int, seconds: float) -> float:
    loop, result = multiply_add_loop(instructions), torch.ones(threads)

    def run() -> int:
        return loop(ROUNDS, address(result), threads)

    return threads * run() / best_seconds(run, seconds)


def _stream(touched: int, inputs: int, writes: bool, past: bool, threads: int, seconds: float) -> float:
    arrays = inputs + writes
    blocks = -(-touched // (arrays * threads * BLOCK * FLOAT))  # of a thread's part of one array
    size = threads * blocks * BLOCK
    a, b, to = (torch.ones(size) if there else None for there in (True, inputs > 1, writes))
    tensors = (a, b, to, torch.zeros(threads))
    rounds = 2 * -(-MOVED // (2 * arrays * size * FLOAT))  # as often forward as backward
    loop = stream_loop()
    best = best_seconds(lambda: loop(*map(address, tensors), blocks, rounds, past, threads), seconds)
    return rounds * arrays * size * FLOAT / best
