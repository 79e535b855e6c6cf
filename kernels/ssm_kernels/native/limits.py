"""What this machine can do at most, measured: a kernel's time is judged by the time that these limits allow.

A kernel that does f multiply-adds of whole vectors and reads and writes b bytes takes at least
max(f * fma_ns, b / copy_rate(b)) of time; a product of matrices at least its operations / gemm. The copy that it is
held against moves as many bytes as the kernel, because what fits into a cache moves several times faster than what
does not.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import torch

from ssm_kernels.native.call import call

SOURCE = "native/limits.cpp"
FMA_CHAINS = 12  # multiply-adds a round, as in the C++
CACHED = 2**18  # bytes that a thread moves within its second cache
FAR = 2**28  # bytes moved through memory: more than the caches hold
MOVED = 2**22  # bytes a timed run moves at least
FLOAT = 4  # bytes
SECONDS = 0.2  # for each limit


@dataclass(frozen=True)
class MachineLimits:
    """Of `threads` threads together, except `fma_ns`, which is of one while all of them work."""

    threads: int
    gemm: float  # float32 operations a second (two a multiply-add) of a product of 1024 x 1024 matrices
    gemm_small: float  # the same at 64 x 64
    copy_cached: float  # bytes read and written a second, copying within the second cache
    copy_memory: float  # the same through memory
    fma_ns: float  # time of one multiply-add of a whole vector of the instruction set that the C++ is compiled for


def machine_limits(threads: int = 1) -> MachineLimits:
    """Measure them: the best of many runs, each limit in about 0.2 s.

    Raises:
        NativeUnavailable: no C++ compiler.
    """
    with _threads(threads):
        return MachineLimits(
            threads=threads,
            gemm=_gemm(1024),
            gemm_small=_gemm(64),
            copy_cached=_copy_rate(CACHED * threads),
            copy_memory=_copy_rate(FAR),
            fma_ns=_fma_ns(threads),
        )


def copy_rate(moved: int, threads: int = 1) -> float:
    """Bytes a second, read and written together, of a copy that moves `moved` bytes over and over.

    Raises:
        NativeUnavailable: no C++ compiler.
    """
    with _threads(threads):
        return _copy_rate(moved)


def _gemm(n: int) -> float:
    a, b, c = torch.rand(n, n), torch.rand(n, n), torch.empty(n, n)
    products = max(1, 2**24 // n**3)

    def run() -> None:
        for _ in range(products):
            torch.mm(a, b, out=c)

    return 2 * n**3 * products / _best(run)


def _copy_rate(moved: int) -> float:
    size, rounds = moved // (2 * FLOAT), max(1, MOVED // moved)
    a, b = torch.ones(size), torch.ones(size)  # not empty: memory that was never written is not there yet
    seconds = _best(lambda: call(SOURCE, "limits_copy", torch.float32, a, b, size, rounds))
    return 2 * FLOAT * size * rounds / seconds


def _fma_ns(threads: int) -> float:
    rounds, result = 100_000, torch.zeros(threads)
    seconds = _best(lambda: call(SOURCE, "limits_fma", torch.float32, rounds, result))
    return 1e9 * seconds / (rounds * FMA_CHAINS)


def _best(run: Callable[[], None]) -> float:
    """The shortest time of one run, of as many as fit."""
    run()  # caches, threads, and a clock that speeds up
    best, end = float("inf"), time.perf_counter() + SECONDS
    while time.perf_counter() < end or best == float("inf"):
        start = time.perf_counter()
        run()
        best = min(best, time.perf_counter() - start)
    return best


@contextmanager
def _threads(count: int) -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(count)
    try:
        yield
    finally:
        torch.set_num_threads(before)
