"""What a machine allows: how long a scan would take if it did nothing but its arithmetic, or its reading and writing.

The work of a case is that of its usual algorithm, counted from its formula, in float32:

    diagonal_scan    a, b and h pass through memory once (backward: dh, a, h, da and db); a multiply-add an element
    selective_scan   vector operations by channel and state: a product for the exponent, an exponential of 9 (reduction,
                     a polynomial of degree 6, scaling), delta u B, and the multiply-adds of h and y: 13. Backward: h
                     again (12), and 8 for the gradients. By channel: softplus and its derivative, the skip: 28 and 36
    gated_scan       products of matrices by token and head, chunks of C = 32: the state read and written, 4 K V; scores
                     and their product with v, (C + 1) (K G / H + V); backward twice that. With a vector of decays, in
                     place of that: 3 vector operations by entry of the state, and 8 backward
    delta_scan       the cheaper of two. In chunks of C = 16, by token and head: the state read by q and by the key, and
                     written, 6 K V; scores of both, 2 C K, their system and the product with what it says to write,
                     2 C V; backward twice that. The generalized form writes twice and has four scores: 8 K V +
                     4 C (K + V).
                     Step by step, vector operations by entry of the state: two readings, the decay, the writing, 4
                     (without decay 3, generalized 5); backward the state again (2, 1, 3), 8 for the gradients (6, 10)
    causal_conv1d    x and y pass through memory once (backward: dy, x and dx)

Chunks share a state's readings and writings among products of matrices, for which steps have none of the scores and may
run at the rate of multiply-adds of whole vectors, more than the machine's GEMM has: neither count is always the lower.

On a CPU, products of matrices are held against the machine's own (GEMM), vector operations against its multiply-adds of
whole vectors, and all against a copy that moves as many bytes as the case; on a GPU, against copying alone.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, dataclass
from functools import lru_cache
from math import prod

import torch

from ssm.bench.cases import Case

CHUNK, DELTA_CHUNK = 32, 16  # C
LANES = {"avx512": 16, "avx2": 8, "plain": 4}  # float32 numbers in a vector
FAR = 2**30  # bytes that a GPU copies to tell its memory's speed


@dataclass(frozen=True)
class Limits:
    """Of all threads together (a CPU), or of a GPU."""

    device: str  # cpu, cuda
    threads: int
    gemm: float | None  # float32 operations a second (two a multiply-add) of a large product of matrices; None on a GPU
    vector: float | None  # numbers that vector operations make a second; None on a GPU
    copy: float  # bytes read and written a second through memory
    instructions: str | None = None  # what the C++ is compiled for; None on a GPU

    def text(self) -> str:
        """One line for reading."""
        gemm = f"GEMM {self.gemm / 1e9:,.0f} GF/s, " if self.gemm else ""
        vector = f"{self.vector / 1e9:.0f} G vector operations/s by lane, " if self.vector else ""
        where = f"{self.threads} thread(s), {self.instructions}" if self.device == "cpu" else self.device
        copy = f"copy {self.copy / 1e9:,.0f} GB/s through memory"
        return f"limits of {where}: {gemm}{vector}{copy}"

    def content(self) -> dict[str, object]:
        """Plain data, for the provenance."""
        return asdict(self)


@dataclass(frozen=True)
class Work:
    """What a case has to do at least."""

    gemm: float = 0.0  # operations inside products of matrices
    vector: float = 0.0  # numbers made by vector operations outside of them
    moved: float = 0.0  # bytes read and written
    instead: Work | None = None  # another algorithm's for the same, where that may be the cheaper


def measure_limits(device: torch.device) -> Limits:
    """Measured in about a second, with the threads that torch has now.

    Raises:
        NativeUnavailable: a CPU without a C++ compiler.
    """
    if device.type == "cuda":
        return _gpu_limits(device)
    from ssm_kernels.native import instructions
    from ssm_kernels.native.limits import machine_limits

    threads = torch.get_num_threads()
    found = machine_limits(threads)
    chosen = instructions()
    vector = threads * LANES[chosen] / (1e-9 * found.fma_ns)
    return Limits("cpu", threads, found.gemm, vector, found.copy_memory, chosen)


def limit_ms(case: Case, limits: Limits) -> float:
    """The least time of the case on this machine, in milliseconds; on a GPU that of its memory alone."""
    done = work(case)
    if limits.gemm is None or limits.vector is None:
        return 1000 * done.moved / limits.copy
    ways = [done] if done.instead is None else [done, done.instead]
    compute = min(way.gemm / limits.gemm + way.vector / limits.vector for way in ways)
    return 1000 * max(compute, done.moved / _copy_rate(int(done.moved), limits.threads))


def work(case: Case) -> Work:
    """The least work of a case, forward or forward and backward."""
    return WORK[case.operation](case)


def _diagonal(case: Case) -> Work:
    complex_ = case.system == "S5, complex"  # whose a is a constant
    arrays = (2 + 3 * case.backward) if complex_ else (3 + 5 * case.backward)
    numbers = prod(case.sizes) * (2 if complex_ else 1)
    return Work(
        vector=numbers * (2 if complex_ else 1) * (1 + 2 * case.backward), moved=arrays * numbers * _bytes(case)
    )


def _selective(case: Case) -> Work:
    B, T, D, N = case.sizes
    by_state, by_channel = (33, 64) if case.backward else (13, 28)
    moved = B * T * (D * (3 + 5 * case.backward) + N * (2 + 4 * case.backward)) * _bytes(case)
    return Work(vector=B * T * D * (by_state * N + by_channel), moved=moved)


def _gated(case: Case) -> Work:
    B, T, H, K, V = case.sizes
    shared = H if case.system == "Mamba-2" else 1  # heads that share q and k
    by_key = K if case.system in ("GLA", "RWKV-6") else 0
    times = 3 if case.backward else 1
    by_head = 2 * K // shared + 2 * V + by_key
    moved = B * T * H * by_head * _bytes(case) * (2.5 if case.backward else 1)  # q, k, v, y; again, and their gradients
    if by_key:
        return Work(vector=B * T * H * K * V * (11 if case.backward else 3), moved=moved)
    gemm = B * T * H * times * (4 * K * V + (CHUNK + 1) * (K / shared + V))
    return Work(gemm=gemm, moved=moved)


def _delta(case: Case) -> Work:
    B, T, H, K, V = case.sizes
    decays = {"DeltaNet": 0, "Gated DeltaNet": 1}.get(case.system, K)
    generalized = case.system == "RWKV-7"
    by_head = (4 if generalized else 2) * K + 2 * V + decays + (not generalized)
    moved = B * T * H * by_head * _bytes(case) * (2.5 if case.backward else 1)  # as of a gated scan
    in_chunks = (8 * K * V + 4 * DELTA_CHUNK * (K + V)) if generalized else (6 * K * V + 2 * DELTA_CHUNK * (K + V))
    step, back = (5, 13) if generalized else (4, 10) if decays else (3, 7)
    steps = Work(vector=B * T * H * K * V * (step + back * case.backward))
    return Work(gemm=B * T * H * in_chunks * (3 if case.backward else 1), moved=moved, instead=steps)


def _conv(case: Case) -> Work:
    numbers = prod(case.sizes)
    return Work(vector=numbers * (20 + 40 * case.backward), moved=numbers * (2 + 3 * case.backward) * _bytes(case))


WORK: dict[str, Callable[[Case], Work]] = {
    "diagonal_scan": _diagonal,
    "selective_scan": _selective,
    "gated_scan": _gated,
    "delta_scan": _delta,
    "causal_conv1d": _conv,
}


def _bytes(case: Case) -> int:
    return case.dtype.itemsize


@lru_cache(maxsize=64)
def _copy_rate(moved: int, threads: int) -> float:
    from ssm_kernels.native.limits import copy_rate

    return copy_rate(max(moved, 2**12), threads)


def _gpu_limits(device: torch.device) -> Limits:
    """By CUDA events: a copy of a gigabyte."""
    here, there = (torch.empty(FAR, dtype=torch.uint8, device=device) for _ in range(2))
    return Limits("cuda", 1, None, None, 2 * FAR / _gpu_seconds(lambda: there.copy_(here)))


def _gpu_seconds(run: Callable[[], object], times: int = 10) -> float:
    run()
    start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    start.record()
    for _ in range(times):
        run()
    end.record()
    torch.cuda.synchronize()
    return 1e-3 * start.elapsed_time(end) / times
