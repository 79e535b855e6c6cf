"""Every Triton kernel compiles ahead of time for H100, some for A100, without a GPU, and fits into their memory."""

from __future__ import annotations

import importlib
import re
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import torch

pytest.importorskip("triton", reason="the triton package is not installed (Linux only)")

from kernels.cases import exhaustive
from kernels.triton_addresses import wrong_addresses
from kernels.triton_compile import Resources, compile_ahead, compiled_ahead, intermediate_code
from ssm_kernels.native import triton_launch
from ssm_kernels.native.triton_launch import Launch, launching
from torch import Tensor

SHARED = {80: 163 * 1024, 90: 227 * 1024}  # bytes per block
SPILLED = {80: 640, 90: 256}  # bytes per thread; the tiles are chosen for the H100
FLOAT32_SPILLED = 32  # bytes per thread in float32 at up to 128 keys, on an H100
MORE_SPILLED = {
    "selective, N 64": 384,  # no published model has this size
    "delta, by head, K 256, bfloat16": 640,  # fla's default shape: a program holds all 256 keys of a state's columns
    "gated, by key, K 256, float32": 384,  # the scores of 16 tokens need all 256 keys
}
OLDER_SPILLED = {"gated, by head, bfloat16": 640}  # the gradients of keys without wgmma, as on an A100


class Size(NamedTuple):
    """Sizes of a call. Only scans without heads use `channels`."""

    batch: int = 1
    length: int = 4096
    channels: int = 2048


USUAL = Size()
HUGE = Size(65535, 131072, 65536)  # the largest grid; every tensor has more elements than 32 bits can count


def meta(*shape: int, dtype: torch.dtype = torch.float32) -> Tensor:
    return torch.empty(shape, dtype=dtype, device="meta")


def launches(operation: str, options: tuple[Any, ...], keep_output: bool = False, **tensors: Tensor) -> list[Launch]:
    """The launches of a forward and backward pass, one for each specialization of a kernel."""
    inputs = importlib.import_module(f"ssm_kernels.{operation}.inputs")
    backend = importlib.import_module(f"ssm_kernels.{operation}.triton")
    given = inputs.Inputs(**{**dict.fromkeys(inputs.Inputs._fields), **tensors})
    chosen = inputs.Options(*options)
    recorded: list[Launch] = []
    with launching(recorded.append):
        y, state, saved = backend.forward(given, chosen, True)
        backend.backward(y, state, saved, y if keep_output else None, given, chosen)
    return recorded


def gated(
    dtype: torch.dtype, decay: str, bonus: bool = False, size: Size = USUAL, keys: int = 128, values: int = 128
) -> list[Launch]:
    """The shape of Mamba-2 (V 64) for decays per head, of GLA and RWKV-6 (V 128) for decays per key."""
    B, T, _ = size
    H, G, K, V = (24, 1, keys, values // 2) if decay == "head" else (16, 16, keys, values)
    tensors = {n: meta(B, T, G, K, dtype=dtype) for n in ("q", "k")} | {"v": meta(B, T, H, V, dtype=dtype)}
    tensors["log_decay"] = meta(B, T, H) if decay == "head" else meta(B, T, H, K)
    tensors |= {"bonus": meta(H, K)} if bonus else {}
    return launches("gated_scan", (32,), **tensors, h0=meta(B, H, K, V), resets=meta(B, T, dtype=torch.bool))


def delta(dtype: torch.dtype, decay: str, general: bool = False, size: Size = USUAL, keys: int = 128) -> list[Launch]:
    """The shape of Gated DeltaNet and Kimi Delta Attention (K and V 128), or RWKV-7 (64) for the general form."""
    B, T, _ = size
    H, G, K, V = (32, 32, 64, 64) if general else (32, 16, keys, 128)
    tensors = {n: meta(B, T, G, K, dtype=dtype) for n in ("q", "k")} | {"v": meta(B, T, H, V, dtype=dtype)}
    tensors |= {n: meta(B, T, H, K, dtype=dtype) for n in ("a", "b")} if general else {"beta": meta(B, T, H)}
    tensors |= {} if decay == "none" else {"log_decay": meta(B, T, H) if decay == "head" else meta(B, T, H, K)}
    return launches("delta_scan", (32,), **tensors, h0=meta(B, H, K, V), resets=meta(B, T, dtype=torch.bool))


def selective(dtype: torch.dtype, state: int, size: Size = USUAL, resets: bool = False) -> list[Launch]:
    B, T, D = size
    tensors = {n: meta(B, T, D, dtype=dtype) for n in ("u", "dt", "z")}
    tensors |= {n: meta(B, T, state, dtype=dtype) for n in ("B", "C")}
    tensors |= {"A": meta(D, state), "D": meta(D), "dt_bias": meta(D), "h0": meta(B, D, state)}
    tensors |= {"resets": meta(B, T, dtype=torch.bool)} if resets else {}
    return launches("selective_scan", (True,), **tensors)


def diagonal(dtype: torch.dtype, constant: bool, size: Size = USUAL, resets: bool = False) -> list[Launch]:
    B, T, D = size
    a = meta(D, dtype=dtype) if constant else meta(B, T, D, dtype=dtype)
    tensors = {"a": a, "b": meta(B, T, D, dtype=dtype), "h0": meta(B, D, dtype=dtype)}
    tensors |= {"resets": meta(B, T, dtype=torch.bool)} if resets else {}
    return launches("diagonal_scan", (), keep_output=True, **tensors)


CALLS: dict[str, Callable[..., list[Launch]]] = {
    "gated, by head, bfloat16": partial(gated, torch.bfloat16, "head"),
    "gated, by head, float32": partial(gated, torch.float32, "head"),
    "gated, by key, bfloat16": partial(gated, torch.bfloat16, "key"),
    "gated, by head, float64": partial(gated, torch.float64, "head"),
    "gated, by key and bonus, bfloat16": partial(gated, torch.bfloat16, "key", bonus=True),
    "gated, by key, float32": partial(gated, torch.float32, "key"),
    "gated, by key, float64": partial(gated, torch.float64, "key"),
    "gated, by head and bonus, float64": partial(gated, torch.float64, "head", bonus=True),
    "gated, by key and bonus, float64": partial(gated, torch.float64, "key", bonus=True),
    "delta, by head, bfloat16": partial(delta, torch.bfloat16, "head"),
    "delta, by head, float32": partial(delta, torch.float32, "head"),
    "delta, by head, K 256, bfloat16": partial(delta, torch.bfloat16, "head", keys=256),
    "delta, by head, K 256, float32": partial(delta, torch.float32, "head", keys=256),
    "delta, by key, float32": partial(delta, torch.float32, "key"),
    "delta, generalized by key, bfloat16": partial(delta, torch.bfloat16, "key", general=True),
    "selective, N 16": partial(selective, torch.bfloat16, 16),
    "selective, N 64": partial(selective, torch.float32, 64),
    "diagonal": partial(diagonal, torch.float32, False),
    "diagonal, complex and constant": partial(diagonal, torch.complex64, True),
}
# Calls whose tensors have more elements than 32 bits can count, for every form with different address computations.
LARGE: dict[str, Callable[[], list[Launch]]] = {name: partial(call, size=HUGE) for name, call in CALLS.items()} | {
    "gated, by head and bonus, float32": partial(gated, torch.float32, "head", bonus=True, size=HUGE),
    "delta, no decay, float32": partial(delta, torch.float32, "none", size=HUGE),
    "delta, by head step by step": partial(delta, torch.float32, "head", size=HUGE, keys=512),
    "selective, resets": partial(selective, torch.float32, 16, HUGE, resets=True),
    "selective, N 4096": partial(selective, torch.float32, 4096, Size(1, 131072, 2**20)),
    "selective, a state that 32 bits count": partial(selective, torch.float32, 64, Size(1, 131072, 2**18)),
    "diagonal, resets": partial(diagonal, torch.float32, False, HUGE, resets=True),
    "diagonal, complex": partial(diagonal, torch.complex64, False, HUGE),
}

# Other sizes: 256 keys, and less than a tile or a chunk.
SIZES: dict[str, Callable[[], list[Launch]]] = {
    "gated, by key, K 256, bfloat16": partial(gated, torch.bfloat16, "key", keys=256),
    "gated, by key, K 256, float32": partial(gated, torch.float32, "key", keys=256),
    "gated, by head, T 7, bfloat16": partial(gated, torch.bfloat16, "head", size=Size(2, 7), keys=17, values=70),
    "gated, by head, T 1, float32": partial(gated, torch.float32, "head", size=Size(2, 1)),
    "gated, by key, T 1, bfloat16": partial(gated, torch.bfloat16, "key", size=Size(2, 1)),
    "gated, by key, T 7, float32": partial(gated, torch.float32, "key", size=Size(2, 7), keys=5, values=3),
    "delta, by head, T 33, bfloat16": partial(delta, torch.bfloat16, "head", size=Size(2, 33), keys=17),
}

FIRST = [("diagonal, complex and constant", 80), ("delta, generalized by key, bfloat16", 90)]
# For A100, the call of each other operation with the most spilled registers and shared memory.
REST = [("gated, by head, bfloat16", 80), ("delta, by head, K 256, bfloat16", 80), ("selective, N 64", 80)]
REST += [(name, 90) for name in (*CALLS, *SIZES) if (name, 90) not in FIRST]
# Calls with products of half precision, and one in float32, as `avoid_unsafe_products` compiles them.
OLDER = ["gated, by head, bfloat16", "gated, by head, float32", "gated, by key and bonus, bfloat16"]
OLDER += ["delta, by head, bfloat16", "delta, by head, K 256, bfloat16"]
ALL = [(*row, False) for row in REST] + [(name, 90, True) for name in OLDER]


@pytest.mark.parametrize(("name", "capability", "older"), [*((*row, False) for row in FIRST), *exhaustive(*ALL)])
def test_it_compiles_and_fits(name: str, capability: int, older: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    if older:
        monkeypatch.setenv("DISABLE_MMA_V3", "1")
    recorded = SIZES[name]() if name in SIZES else CALLS[name](size=USUAL)
    if name in CALLS and "delta" not in name:
        assert len(recorded) >= 4  # a long sequence in few programs is split into segments with a carry
    for launch in recorded:
        used = compile_ahead(launch, capability)
        assert used.shared <= SHARED[capability], used
        precise = "float32" in name and "K 256" not in name and capability == 90
        more = max(MORE_SPILLED.get(name, 0), OLDER_SPILLED.get(name, 0) if older else 0)
        allowed = FLOAT32_SPILLED if precise else max(SPILLED[capability], more)
        assert used.spilled <= allowed, used
        assert used.registers <= 255, used


def test_older_instructions_for_products(monkeypatch: pytest.MonkeyPatch) -> None:
    """The setting of `avoid_unsafe_products` compiles products on an H100 without wgmma."""
    launch = next(x for x in gated(torch.bfloat16, "head") if x.kernel.__name__ == "head_forward_kernel")
    assert "wgmma" in compiled_ahead(launch, 90).asm["ptx"]
    monkeypatch.setenv("DISABLE_MMA_V3", "1")
    assert "wgmma" not in compiled_ahead(launch, 90).asm["ptx"]


def test_a_grid_is_not_larger_than_a_gpu_allows() -> None:
    with pytest.raises(ValueError, match=r"^selective_\w+: 65,536 sequences or chunks in one call, at most 65,535"):
        selective(torch.float32, 16, Size(65536, 64, 64))


def test_the_target_of_an_h100_is_sm_90a() -> None:
    """Triton compiles for capability 90 with the instructions that only an H100 has."""
    (launch, *_) = diagonal(torch.float32, True)
    assert ".target sm_90a" in compiled_ahead(launch, 90).asm["ptx"]


@pytest.mark.exhaustive
def test_the_check_detects_spilled_registers() -> None:
    """A kernel with a tile of 128 channels spills registers, and the compiler reports it."""
    launch = next(x for x in selective(torch.bfloat16, 16) if x.kernel.__name__ == "selective_backward_kernel")
    used: Resources = compile_ahead(launch._replace(constants={**launch.constants, "BD": 128}), 90)
    assert used.spilled > SPILLED[90]


@pytest.fixture
def many_segments(monkeypatch: pytest.MonkeyPatch) -> None:
    """Split time into segments for any number of sequences."""
    monkeypatch.setattr(triton_launch, "PROGRAMS", 2**40)


FEW = (
    *("gated, by key and bonus, bfloat16", "delta, by head, bfloat16"),
    *("selective, a state that 32 bits count", "diagonal, resets"),
)


@pytest.mark.parametrize("name", [*FEW, *exhaustive(*(name for name in LARGE if name not in FEW))])
def test_no_address_overflows(name: str, many_segments: None) -> None:
    """No offset of a pointer is computed in 32 bits that may be too few."""
    for launch in LARGE[name]():
        assert wrong_addresses(launch, intermediate_code(launch)) == [], launch.kernel.__name__


def test_the_addresses_of_every_kernel_are_checked(many_segments: None) -> None:
    sources = Path(triton_launch.__file__).parents[1].rglob("triton*.py")
    kernels = {name for source in sources for name in re.findall(r"^def (\w+_kernel)\(", source.read_text(), re.M)}
    assert {launch.kernel.__name__ for call in LARGE.values() for launch in call()} == kernels


def test_the_check_detects_an_address_that_overflows() -> None:
    """A stride and a number of steps fit into 32 bits each, but their product does not."""
    launch = next(x for x in diagonal(torch.float32, False, HUGE) if x.kernel.__name__ == "diagonal_forward_kernel")
    code = intermediate_code(launch)
    assert wrong_addresses(launch, code) == []
    assert "extsi %T : i32 to i64" in code
    narrow = code.replace("extsi %T : i32 to i64", "muli %T, %D : i32")
    assert any("muli %T, %D : i32 may be 8589934592" in line for line in wrong_addresses(launch, narrow))


def test_the_delta_scan_uses_chunks_where_possible() -> None:
    """It uses chunks for the delta rule without decays per key, unless the sequence is short or the state is large."""
    chunks = [delta(torch.bfloat16, "head"), delta(torch.float32, "none", size=Size(1, 32))]
    steps = [delta(torch.bfloat16, "key"), delta(torch.bfloat16, "head", general=True)]
    steps += [delta(torch.float32, "head", size=Size(1, 31)), delta(torch.float32, "head", keys=257)]
    assert {x[0].kernel.__name__ for x in chunks} == {"solve_kernel"}
    assert {x[0].kernel.__name__ for x in steps} == {"forward_kernel"}
