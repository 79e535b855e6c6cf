"""Cases of the scan benchmark: operations and sizes, with and without an initial state, for CPUs and GPUs."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace

import torch
import torch.nn.functional as F
from torch import Tensor

Arguments = dict[str, Tensor | None]
Normal = Callable[..., Tensor]  # shape -> standard normal numbers


@dataclass(frozen=True)
class Case:
    """One operation at one size.

    `sizes` is (B, T, D) for a diagonal scan and for a convolution (K = 4). It is (B, T, D, N) for a selective scan, and
    (B, T, H, K, V) for a gated scan and a delta scan. All heads of Mamba-2 share q and k. Other systems have one q and
    one k for each head.
    """

    operation: str  # a function of ssm_kernels
    system: str  # the system that has these shapes and decays
    sizes: tuple[int, ...]
    state: bool = False  # whether there is an initial state and a gradient through the final state
    backward: bool = True  # forward and backward, or only forward
    dtype: torch.dtype = torch.float32

    @property
    def name(self) -> str:
        return f"{self.operation} ({self.system})"

    @property
    def shape(self) -> str:
        return "x".join(map(str, self.sizes))

    @property
    def direction(self) -> str:
        return "forward+backward" if self.backward else "forward"

    @property
    def options(self) -> dict[str, str]:
        """Arguments of the operation that are not tensors."""
        return {"activation": "silu"} if self.operation == "causal_conv1d" else {}

    def arguments(self, device: torch.device, seed: int = 0) -> Arguments:
        """The operation's tensors by name, drawn on the device, in the case's dtype. Decays and states are float32."""
        generator = torch.Generator(device).manual_seed(seed)

        def normal(*shape: int) -> Tensor:
            return torch.randn(shape, generator=generator, device=device)

        arguments = INPUTS[self.operation](self, normal)
        if not self.state:
            arguments.pop("h0", None)
            arguments.pop("state", None)
        exact = ("h0", "state", "log_decay", "A", "D", "dt_bias", "bonus", "weight", "bias")
        return {
            name: None if value is None else value.to(device, value.dtype if name in exact else self._cast(value))
            for name, value in arguments.items()
        }

    def _cast(self, value: Tensor) -> torch.dtype:
        return value.dtype if value.dtype.is_complex else self.dtype


def _diagonal(case: Case, normal: Normal) -> Arguments:
    B, T, D = case.sizes
    decay = torch.sigmoid(2.0 + normal(B, T, D))
    if case.system == "S5, complex":
        turn = torch.polar(torch.sigmoid(2.0 + normal(D)), normal(D))
        b, h0 = (torch.complex(normal(*shape), normal(*shape)) for shape in ((B, T, D), (B, D)))
        return {"a": turn, "b": b, "h0": h0}
    return {"a": decay, "b": normal(B, T, D), "h0": normal(B, D)}


def _selective(case: Case, normal: Normal) -> Arguments:
    B, T, D, N = case.sizes
    dt_bias = torch.log(torch.expm1(torch.exp(normal(D).sigmoid() * 4.6 - 6.9)))
    return {
        "u": normal(B, T, D),
        "dt": 0.5 * normal(B, T, D),
        "A": -torch.arange(1.0, N + 1).expand(D, N).contiguous(),
        "B": normal(B, T, N),
        "C": normal(B, T, N),
        "D": torch.ones(D),
        "dt_bias": dt_bias,
        "h0": normal(B, D, N),
    }


def _gated(case: Case, normal: Normal) -> Arguments:
    B, T, H, K, V = case.sizes
    G = 1 if case.system == "Mamba-2" else H
    decays = {
        "Mamba-2": lambda: -F.softplus(normal(B, T, H) - 3.0),
        "RetNet": lambda: torch.log1p(-torch.exp2(-5.0 - torch.arange(H))),
        "linear attention": lambda: None,
        "GLA": lambda: F.logsigmoid(normal(B, T, H, K)) / 16,
        "RWKV-6": lambda: -torch.exp(normal(B, T, H, K) - 2.0),
    }
    arguments: Arguments = {
        "q": normal(B, T, G, K) * K**-0.5,
        "k": normal(B, T, G, K),
        "v": normal(B, T, H, V),
        "log_decay": decays[case.system](),
        "h0": normal(B, H, K, V),
    }
    return arguments | ({"bonus": normal(H, K)} if case.system == "RWKV-6" else {})


def _delta(case: Case, normal: Normal) -> Arguments:
    B, T, H, K, V = case.sizes
    q, k, v, h0 = normal(B, T, H, K) * K**-0.5, normal(B, T, H, K), normal(B, T, H, V), normal(B, H, K, V)
    if case.system == "RWKV-7":
        removed, rate = F.normalize(normal(B, T, H, K), dim=-1), normal(B, T, H, K).sigmoid()
        decay = -(math.e**-0.5) * normal(B, T, H, K).sigmoid()
        return {"q": q, "k": k * K**-0.5, "v": v, "log_decay": decay, "h0": h0, "a": -removed, "b": removed * rate}
    decays = {
        "DeltaNet": lambda: None,
        "Gated DeltaNet": lambda: -F.softplus(normal(B, T, H) - 3.0),
        "KDA": lambda: -F.softplus(normal(B, T, H, K) - 3.0),
    }
    beta, k = normal(B, T, H).sigmoid(), F.normalize(k, dim=-1)
    return {"q": q, "k": k, "v": v, "beta": beta, "log_decay": decays[case.system](), "h0": h0}


def _conv(case: Case, normal: Normal) -> Arguments:
    B, T, D = case.sizes
    return {"x": normal(B, T, D), "weight": normal(D, 4) / 2, "bias": normal(D), "state": normal(B, 3, D)}


INPUTS: dict[str, Callable[[Case, Normal], Arguments]] = {
    "diagonal_scan": _diagonal,
    "selective_scan": _selective,
    "gated_scan": _gated,
    "delta_scan": _delta,
    "causal_conv1d": _conv,
}


def cpu_cases() -> list[Case]:
    """Cases for CPUs: layers of small models for every system, and long sequences."""
    both = [
        ("diagonal_scan", "RG-LRU", (8, 256, 1024)),
        ("diagonal_scan", "S5, complex", (8, 256, 512)),
        ("selective_scan", "Mamba", (8, 256, 256, 16)),
        ("gated_scan", "Mamba-2", (8, 256, 4, 64, 64)),
        ("gated_scan", "RetNet", (8, 256, 4, 64, 64)),
        ("gated_scan", "GLA", (8, 256, 4, 64, 64)),
        ("gated_scan", "RWKV-6", (8, 256, 4, 64, 64)),
        ("delta_scan", "DeltaNet", (8, 256, 4, 64, 64)),
        ("delta_scan", "Gated DeltaNet", (8, 256, 4, 64, 64)),
        ("delta_scan", "KDA", (8, 256, 4, 64, 64)),
        ("delta_scan", "RWKV-7", (8, 256, 4, 64, 64)),
        ("causal_conv1d", "Mamba", (8, 256, 512)),
    ]
    long = [
        ("selective_scan", "Mamba", (1, 16384, 256, 16)),
        ("gated_scan", "Mamba-2", (1, 16384, 4, 64, 64)),
        ("gated_scan", "GLA", (1, 16384, 4, 64, 64)),
        ("delta_scan", "Gated DeltaNet", (1, 16384, 4, 64, 64)),
    ]
    return [
        *(
            Case(*case, state=state, backward=backward)
            for case in both
            for state in (False, True)
            for backward in (False, True)
        ),
        *(Case(*case, state=state, backward=False) for case in long for state in (False, True)),
    ]


# (B, T, H, D) of fla's benchmarks (benchmarks/ops/registry.py), with D for keys and values; the most usual first.
REGISTRY = (
    *((4, 2048, 16, 128), (8, 1024, 8, 64), (2, 16384, 16, 128)),
    *((8, 2048, 32, 256), (4, 4096, 64, 128), (1, 8192, 96, 128)),
)
REGISTERED = (  # our systems that fla has
    *(("delta_scan", "Gated DeltaNet"), ("gated_scan", "GLA"), ("delta_scan", "KDA"), ("delta_scan", "DeltaNet")),
    *(("delta_scan", "RWKV-7"), ("gated_scan", "RetNet"), ("gated_scan", "RWKV-6"), ("gated_scan", "linear attention")),
)


def gpu_cases() -> list[Case]:
    """Cases for GPUs, in bfloat16 and without a state: one layer of Mamba models, and the sizes of fla's benchmarks."""
    models: list[tuple[str, str, tuple[int, ...]]] = [
        ("gated_scan", "Mamba-2", (8, 2048, 64, 128, 64)),  # 1.3b
        ("selective_scan", "Mamba", (8, 2048, 4096, 16)),  # 1.3b
        ("gated_scan", "Mamba-2", (8, 2048, 32, 128, 64)),  # 370m
        ("selective_scan", "Mamba", (8, 2048, 2048, 16)),  # 370m
        ("causal_conv1d", "Mamba", (8, 2048, 4096)),
        ("diagonal_scan", "RG-LRU", (8, 2048, 2560)),
        ("selective_scan", "Mamba", (1, 65536, 4096, 16)),
    ]
    registry = [(*system, (B, T, H, D, D)) for B, T, H, D in REGISTRY for system in REGISTERED]
    return [
        Case(operation, system, sizes, backward=backward, dtype=torch.bfloat16)
        for operation, system, sizes in [*models, *registry]
        for backward in (True, False)
    ]


def rehearsed(case: Case) -> Case:
    """The case at a tiny size and in float32, for a rehearsal without a GPU."""
    tiny = {3: (1, 5, 8), 4: (1, 5, 8, 4), 5: (1, 5, 2, 4, 4)}
    return replace(case, sizes=tiny[len(case.sizes)], dtype=torch.float32)
