"""Lower bounds of the time that a scan can take on this machine.

No implementation is faster than the limit of a case, except for noise. Therefore the limit counts the fewest operations
that any known form of the scan needs. On a CPU it is

    limit = max(multiply-adds / rate of multiply-adds, bytes / rate of the fastest stream)

of the whole call, forward or forward and backward. The bytes are those of all inputs, outputs and gradients, each
counted once, without states. The stream covers as many bytes, so it uses the caches as a repeated call can.
`ssm_kernels.native.limits` measures both rates.

A product of two numbers counts as a multiply-add, because the same units of a processor compute both. Additions,
divisions, comparisons and conversions do not count, because processors have other units for them. An exponential
counts as 5 multiply-adds (a polynomial of degree 5). The multiply-adds of one step are:

    diagonal_scan    per element: 1 for h. Backward: 2 for dh and da. Complex numbers: twice as many per real number.
    selective_scan   per channel and state: 9 for the exponent, its exponential, delta u B, h and y. Backward: 8 to
                     compute h again (storing it moves N times as many bytes) and 8 for gradients.
                     Per channel: 12 for softplus, delta u and D u. Backward: 16 for softplus, its slope, gradients.
    gated_scan       per head: 2 K V for k v into the state and q out of it, and an exponential for each decay. The
                     scores inside chunks and the decay of the state do not count. Backward: twice the products.
                     (Below about 2 K steps, products of all pairs of steps are cheaper. No case is that short.)
    delta_scan       per head: 3 K V for k out of the state, the correction into it and q out of it; 4 K V in the
                     generalized form. The rest is as in gated_scan.
    causal_conv1d    per element: 10 for 4 taps, an exponential and a product. Backward: 9 for the value before the
                     activation, 3 for the slope of the activation, 8 for the gradients of x and of the weight.

On a GPU, the forward and the backward pass have separate limits, which are added. Exponentials have their own units,
and run at the same time as multiply-adds. So the limit of a pass is the largest of three times: multiply-adds,
exponentials, bytes. The products of gated_scan and delta_scan run at the rate of a large bfloat16 matrix product, on
tensor cores; all other multiply-adds at that of float32. `ssm_kernels.native.gpu_limits` measures these rates.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, dataclass
from functools import lru_cache
from math import prod

import torch

from ssm_kernels.benchmarks.cases import Case

EXP = 5  # multiply-adds of an exponential
FAR = 2**29  # bytes of a stream that is much larger than a CPU's caches
ON_TENSOR_CORES = ("gated_scan", "delta_scan")  # operations whose products are matrix products
EXCEEDED = 1.05  # a ratio of limit to time above this is more than noise
DISTURBED = "nothing can be faster than the limit, so other programs may have disturbed its measurement"


@dataclass(frozen=True)
class Limits:
    """Limits of a CPU (all threads together) or of a GPU."""

    device: str  # cpu, cuda
    threads: int
    memory: float  # bytes read and written per second in main memory
    multiply_adds: float  # float32 multiply-adds per second
    gemm: float  # multiply-adds per second of torch's matrix product: in float32 on a CPU, in bfloat16 on a GPU
    exponentials: float | None = None  # per second; None on a CPU, where they are multiply-adds
    instructions: str | None = None  # instruction set that the C++ is compiled for; None on a GPU
    processor: str | None = None  # name of the processor; None on a GPU

    def text(self) -> str:
        """One line that people read."""
        memory = f"{self.memory / 1e9:,.0f} GB/s through memory"
        peak, gemm = (f"{2 * rate / 1e9:,.0f} GFLOP/s" for rate in (self.multiply_adds, self.gemm))
        if self.exponentials is not None:
            exponentials = f"{self.exponentials / 1e9:,.0f} G exponentials/s"
            return f"Limits of {self.device}: {peak} by multiply-adds (bfloat16 GEMM: {gemm}), {exponentials}, {memory}"
        return f"Limits of {self.threads} thread(s): {peak} by multiply-adds (GEMM by torch: {gemm}), {memory}"

    def warnings(self) -> list[str]:
        """One line if torch's matrix product is faster than the limit. A GPU has tensor cores for it."""
        if self.exponentials is not None or self.gemm <= EXCEEDED * self.multiply_adds:
            return []
        return [f"GEMM by torch: {self.gemm / self.multiply_adds:.2f} times the limit; {DISTURBED}"]

    def content(self) -> dict[str, object]:
        """Plain data, for the provenance of a table."""
        return asdict(self)


@dataclass(frozen=True)
class Work:
    """The smallest amount of work of one pass."""

    multiply_adds: float  # an exponential counts as EXP
    bytes: float  # of inputs and outputs, each counted once
    exponentials: float = 0.0


def measure_limits(device: torch.device) -> Limits:
    """Measure the limits in a few seconds, with torch's current number of threads.

    Raises:
        NativeUnavailable: the device is a CPU, and there is no C++ compiler.
    """
    if device.type == "cuda":
        return measure_gpu(device)
    from ssm_kernels.native import cpu, limits

    threads = torch.get_num_threads()
    return Limits(
        device="cpu",
        threads=threads,
        memory=limits.stream(FAR, threads),
        multiply_adds=limits.multiply_adds(threads),
        gemm=_gemm(),
        instructions=cpu.instructions(),
        processor=cpu.description()[0],
    )


def measure_gpu(device: torch.device, **sizes: dict[str, int]) -> Limits:
    """The limits of a GPU; `sizes`: smaller sizes for a measurement in ssm_kernels.native.gpu_limits, by its name."""
    from ssm_kernels.native import gpu_limits

    def rate(name: str) -> float:
        found: float = getattr(gpu_limits, name)(device, **sizes.get(name, {}))
        return found

    return Limits(
        device="cuda",
        threads=1,
        memory=rate("copy"),
        multiply_adds=rate("multiply_adds"),
        gemm=rate("matrix_products"),
        exponentials=rate("exponentials"),
    )


def limit_ms(case: Case, limits: Limits) -> float:
    """The smallest time of the case on this machine, in milliseconds."""
    passes = work(case)
    if limits.exponentials is None:
        size = touched(case)
        compute = sum(done.multiply_adds for done in passes) / limits.multiply_adds
        return 1000 * max(compute, size / _stream(int(size), limits.threads))
    seconds = 0.0
    for done in passes:
        rate = limits.gemm if case.operation in ON_TENSOR_CORES else limits.multiply_adds
        products = done.multiply_adds - EXP * done.exponentials
        seconds += max(done.bytes / limits.memory, products / rate, done.exponentials / limits.exponentials)
    return 1000 * seconds


def touched(case: Case) -> float:
    """Bytes of all inputs, outputs and gradients, each counted once. Every input and output has a gradient."""
    passes = work(case)
    return len(passes) * passes[0].bytes


def work(case: Case) -> list[Work]:
    """The smallest work of a case's forward pass, and of its backward pass if it has one."""
    passes = WORK[case.operation](case)
    return list(passes) if case.backward else [passes[0]]


Passes = tuple[Work, Work]  # forward, backward


def _diagonal(case: Case) -> Passes:
    complex_ = case.system == "S5, complex"  # its a is constant in time
    numbers = prod(case.sizes) * (2 if complex_ else 1)
    products = numbers * (2 if complex_ else 1)
    forward, backward = (2, 3) if complex_ else (3, 5)  # b -> h; dh, h -> db; and a -> ; a -> da
    return (
        Work(products, forward * numbers * _bytes(case)),
        Work(2 * products, backward * numbers * _bytes(case)),
    )


def _selective(case: Case) -> Passes:
    B, T, D, N = case.sizes
    return (  # u, dt, B, C -> y; and dy -> du, ddt, dB, dC
        Work(B * T * D * ((4 + EXP) * N + 7 + EXP), B * T * (3 * D + 2 * N) * _bytes(case), B * T * D * (N + 1)),
        Work(B * T * D * ((3 + EXP + 8) * N + 11 + EXP), B * T * (5 * D + 4 * N) * _bytes(case), B * T * D * (N + 1)),
    )


def _gated(case: Case) -> Passes:
    K = case.sizes[3]
    shared = case.sizes[2] if case.system == "Mamba-2" else 1  # heads that share q and k
    decays = {"Mamba-2": 1, "GLA": K, "RWKV-6": K}.get(case.system, 0)  # by token and head
    return _matrix_states(case, products=2, inputs=2 * K / shared + decays, decays=decays)


def _delta(case: Case) -> Passes:
    K = case.sizes[3]
    decays = {"DeltaNet": 0, "Gated DeltaNet": 1}.get(case.system, K)
    generalized = case.system == "RWKV-7"  # a and b in place of beta
    inputs = (4 * K if generalized else 2 * K + 1) + decays
    return _matrix_states(case, products=4 if generalized else 3, inputs=inputs, decays=decays)


def _matrix_states(case: Case, products: int, inputs: float, decays: int) -> Passes:
    """Work for states of (K, V), with `products` with the state and `inputs` besides v, per token and head."""
    B, T, H, K, V = case.sizes
    tokens = B * T * H
    forward, backward = inputs + 2 * V, 2 * inputs + 3 * V  # inputs, v -> y; and dy -> their gradients
    return (
        Work(tokens * (products * K * V + EXP * decays), tokens * forward * _bytes(case), tokens * decays),
        Work(tokens * 2 * products * K * V, tokens * backward * _bytes(case)),
    )


def _conv(case: Case) -> Passes:
    numbers = prod(case.sizes)
    return (  # x -> y; x, dy -> dx
        Work(numbers * (5 + EXP), 2 * numbers * _bytes(case), numbers),
        Work(numbers * (15 + EXP), 3 * numbers * _bytes(case), numbers),
    )


WORK: dict[str, Callable[[Case], Passes]] = {
    "diagonal_scan": _diagonal,
    "selective_scan": _selective,
    "gated_scan": _gated,
    "delta_scan": _delta,
    "causal_conv1d": _conv,
}


def _bytes(case: Case) -> int:
    return case.dtype.itemsize


@lru_cache(maxsize=64)
def _stream(touched: int, threads: int) -> float:
    from ssm_kernels.native.limits import stream

    return stream(touched, threads)


def _gemm() -> float:
    """Multiply-adds per second of a large matrix product in torch."""
    from ssm_kernels.native.limits import best_seconds

    n = 1024
    a, b, c = (torch.rand(n, n) for _ in range(3))
    return n**3 / best_seconds(lambda: torch.mm(a, b, out=c), 0.2)
