"""Every Triton kernel compiled ahead of time for A100 and H100, without either: it compiles, and it fits."""

from __future__ import annotations

import importlib
from typing import Any

import pytest
import torch

pytest.importorskip("triton", reason="the triton package is not installed (Linux only)")

from ssm_kernels.native.triton_compile import Resources, compile_ahead
from ssm_kernels.native.triton_launch import Launch, recording
from torch import Tensor

SHARED = {80: 163 * 1024, 90: 227 * 1024}  # bytes that a block can have
SPILLED = {80: 640, 90: 256}  # bytes by thread; tiles are chosen for the H100
WIDE_SPILLED = 384  # with states of 64 numbers a channel, which no published model has


def meta(*shape: int, dtype: torch.dtype = torch.float32) -> Tensor:
    return torch.empty(shape, dtype=dtype, device="meta")


def launches(operation: str, options: tuple[Any, ...], keep_output: bool = False, **tensors: Tensor) -> list[Launch]:
    """What a forward and backward of these shapes launches: each kernel once for every way it is compiled."""
    inputs = importlib.import_module(f"ssm_kernels.{operation}.inputs")
    backend = importlib.import_module(f"ssm_kernels.{operation}.triton")
    given = inputs.Inputs(**{**dict.fromkeys(inputs.Inputs._fields), **tensors})
    chosen = inputs.Options(*options)
    with recording() as recorded:
        y, state, saved = backend.forward(given, chosen, True)
        backend.backward(y, state, saved, y if keep_output else None, given, chosen)
    return recorded


def gated(dtype: torch.dtype, decay: str, bonus: bool = False) -> list[Launch]:
    """Mamba-2's shape (K 128, V 64), or GLA's and RWKV-6's where every key has a decay."""
    B, T, H, G, K, V = (1, 4096, 24, 1, 128, 64) if decay == "head" else (1, 4096, 16, 16, 128, 128)
    tensors = {
        "q": meta(B, T, G, K, dtype=dtype),
        "k": meta(B, T, G, K, dtype=dtype),
        "v": meta(B, T, H, V, dtype=dtype),
    }
    tensors["log_decay"] = meta(B, T, H) if decay == "head" else meta(B, T, H, K)
    tensors |= {"bonus": meta(H, K)} if bonus else {}
    return launches("gated_scan", (32,), **tensors, h0=meta(B, H, K, V), resets=meta(B, T, dtype=torch.bool))


def selective(dtype: torch.dtype, state: int) -> list[Launch]:
    B, T, D = 1, 4096, 2048
    sequence, projection = ({"dtype": dtype, "shape": (B, T, n)} for n in (D, state))
    tensors = {n: meta(*sequence["shape"], dtype=dtype) for n in ("u", "dt", "z")}
    tensors |= {n: meta(*projection["shape"], dtype=dtype) for n in ("B", "C")}
    tensors |= {"A": meta(D, state), "D": meta(D), "dt_bias": meta(D), "h0": meta(B, D, state)}
    return launches("selective_scan", (True,), **tensors)


def diagonal(dtype: torch.dtype, constant: bool) -> list[Launch]:
    B, T, D = 1, 4096, 1024
    a = meta(D, dtype=dtype) if constant else meta(B, T, D, dtype=dtype)
    return launches(
        "diagonal_scan", (), keep_output=True, a=a, b=meta(B, T, D, dtype=dtype), h0=meta(B, D, dtype=dtype)
    )


SETS = {
    "gated, by head, bfloat16": lambda: gated(torch.bfloat16, "head"),
    "gated, by head, float32": lambda: gated(torch.float32, "head"),
    "gated, by key, bfloat16": lambda: gated(torch.bfloat16, "key"),
    "gated, by key and bonus, bfloat16": lambda: gated(torch.bfloat16, "key", bonus=True),
    "gated, by key, float32": lambda: gated(torch.float32, "key"),
    "selective, N 16": lambda: selective(torch.bfloat16, 16),
    "selective, N 64": lambda: selective(torch.float32, 64),
    "diagonal": lambda: diagonal(torch.float32, False),
    "diagonal, complex and constant": lambda: diagonal(torch.complex64, True),
}


FIRST = [("gated, by head, bfloat16", 90), ("selective, N 16", 90), ("diagonal, complex and constant", 80)]
REST = [(which, capability) for which in SETS for capability in (80, 90) if (which, capability) not in FIRST]


@pytest.mark.parametrize(
    ("which", "capability"), [*FIRST, *(pytest.param(*one, marks=pytest.mark.exhaustive) for one in REST)]
)
def test_it_compiles_and_fits(which: str, capability: int) -> None:
    recorded = SETS[which]()
    assert len(recorded) >= 4  # a long sequence in few programs: segments and their carry too
    for launch in recorded:
        used = compile_ahead(launch, capability)
        assert used.shared <= SHARED[capability], used
        assert used.spilled <= max(SPILLED[capability], WIDE_SPILLED if "N 64" in which else 0), used
        assert used.registers <= 255, used


@pytest.mark.exhaustive
def test_what_does_not_fit_is_seen() -> None:
    """The same kernel with a tile of 64 states and channels more: its registers overflow, and the report says so."""
    launch = next(x for x in selective(torch.bfloat16, 16) if x.kernel.__name__ == "selective_backward_kernel")
    used: Resources = compile_ahead(launch._replace(constants={**launch.constants, "BD": 128}), 90)
    assert used.spilled > SPILLED[90]
