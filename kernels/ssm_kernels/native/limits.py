"""Measure the limits of a processor: its rate of multiply-adds and its rate of memory access.

A kernel with n float32 multiply-adds that reads or writes each of b bytes once takes at least
max(n / multiply_adds(), b / stream(b)) seconds. Two loops measure these rates and do nothing else:

    multiply_adds  independent multiply-adds in registers. The loop uses the fastest instruction set of the processor,
                   even if kernels are compiled for another one. A multiplication counts as a multiply-add, because
                   both need a multiplier.
    stream         the fastest of several streams over as many bytes as the kernel touches: read, copy, or add two
                   arrays into a third, with writes through the caches or past them. So data that fits into a cache is
                   compared with that cache. The streams run forward and backward in turn, so that each sweep finds
                   data that is still in the caches.
"""

from __future__ import annotations

import ctypes
import time
from collections.abc import Callable

import torch

from ssm_kernels.native import instruction_sets, load
from ssm_kernels.native.call import addresses

SOURCE = "native/limits.cpp"
BLOCK = 1024  # floats per block of a stream, as in the C++
FLOAT = 4  # bytes of a float32
ROUNDS = 200_000  # rounds of multiply-adds in a timed run, about a millisecond
MOVED = 2**25  # smallest number of bytes of a timed stream
STREAMS = ((1, False, False), (1, True, False), (1, True, True), (2, True, False), (2, True, True))
"""Number of arrays that are read, whether an array is written, and whether writes bypass the caches."""


def multiply_adds(threads: int = 1, seconds: float = 0.5) -> float:
    """Float32 multiply-adds per second of all threads together, in registers. A multiply-add is two FLOP.

    Args:
        seconds: time to measure each instruction set of the processor. The best run counts.

    Raises:
        NativeUnavailable: there is no C++ compiler.
    """
    return max(_multiply_adds(name, threads, seconds) for name in instruction_sets())


def stream(touched: int, threads: int = 1, seconds: float = 0.1) -> float:
    """Bytes read and written per second by the fastest stream over arrays with `touched` bytes in total.

    Args:
        seconds: time to measure each kind of stream. The best run counts.

    Raises:
        NativeUnavailable: there is no C++ compiler.
    """
    return max(_stream(touched, *kind, threads, seconds) for kind in STREAMS)


def best_seconds(run: Callable[[], object], seconds: float) -> float:
    """Shortest time of one call, in seconds, over as many calls as fit into `seconds`; at least one call."""
    run()  # warm up caches, threads and the clock rate
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
        return loop(ROUNDS, result.data_ptr(), threads)

    return threads * run() / best_seconds(run, seconds)


def _stream(touched: int, inputs: int, writes: bool, past: bool, threads: int, seconds: float) -> float:
    arrays = inputs + writes
    blocks = -(-touched // (arrays * threads * BLOCK * FLOAT))  # per thread and array
    size = threads * blocks * BLOCK
    a, b, to = (torch.ones(size) if there else None for there in (True, inputs > 1, writes))
    tensors = (a, b, to, torch.zeros(threads))
    rounds = 2 * -(-MOVED // (2 * arrays * size * FLOAT))  # an even number: forward and backward in turn
    loop = stream_loop()
    best = best_seconds(lambda: loop(*addresses(tensors), blocks, rounds, past, threads), seconds)
    return rounds * arrays * size * FLOAT / best
