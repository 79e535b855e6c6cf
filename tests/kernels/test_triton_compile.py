"""Every Triton kernel compiled ahead of time for A100 and H100, without either: it compiles, and it fits."""

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

from kernels.triton_addresses import wrong_addresses
from kernels.triton_compile import Resources, compile_ahead, intermediate_code
from ssm_kernels.native import triton_launch
from ssm_kernels.native.triton_launch import Launch, recording
from torch import Tensor

SHARED = {80: 163 * 1024, 90: 227 * 1024}  # bytes that a block can have
SPILLED = {80: 640, 90: 256}  # bytes by thread; tiles are chosen for the H100
MORE_SPILLED = {
    "selective, N 64": 384,  # which no published model has
    "delta, by head, K 256, bfloat16": 640,  # fla's default shape: a program holds all 256 keys of a state's columns
}


class Size(NamedTuple):
    """Of a call; channels are those of the scans that have no heads."""

    batch: int = 1
    length: int = 4096
    channels: int = 2048


USUAL = Size()
HUGE = Size(65535, 131072, 65536)  # as many as a grid may have, and every tensor beyond what 32 bits can count


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


def gated(dtype: torch.dtype, decay: str, bonus: bool = False, size: Size = USUAL) -> list[Launch]:
    """Mamba-2's shape (K 128, V 64), or GLA's and RWKV-6's where every key has a decay."""
    B, T, _ = size
    H, G, K, V = (24, 1, 128, 64) if decay == "head" else (16, 16, 128, 128)
    tensors = {
        "q": meta(B, T, G, K, dtype=dtype),
        "k": meta(B, T, G, K, dtype=dtype),
        "v": meta(B, T, H, V, dtype=dtype),
    }
    tensors["log_decay"] = meta(B, T, H) if decay == "head" else meta(B, T, H, K)
    tensors |= {"bonus": meta(H, K)} if bonus else {}
    return launches("gated_scan", (32,), **tensors, h0=meta(B, H, K, V), resets=meta(B, T, dtype=torch.bool))


def delta(dtype: torch.dtype, decay: str, general: bool = False, size: Size = USUAL, keys: int = 128) -> list[Launch]:
    """Gated DeltaNet's shape, or Kimi Delta Attention's (K and V 128); the generalized form has RWKV-7's (64)."""
    B, T, _ = size
    H, G, K, V = (32, 32, 64, 64) if general else (32, 16, keys, 128)
    tensors = {n: meta(B, T, G, K, dtype=dtype) for n in ("q", "k")} | {"v": meta(B, T, H, V, dtype=dtype)}
    tensors |= {n: meta(B, T, H, K, dtype=dtype) for n in ("a", "b")} if general else {"beta": meta(B, T, H)}
    tensors |= {} if decay == "none" else {"log_decay": meta(B, T, H) if decay == "head" else meta(B, T, H, K)}
    return launches("delta_scan", (32,), **tensors, h0=meta(B, H, K, V), resets=meta(B, T, dtype=torch.bool))


def selective(dtype: torch.dtype, state: int, size: Size = USUAL, resets: bool = False) -> list[Launch]:
    B, T, D = size
    sequence, projection = ({"dtype": dtype, "shape": (B, T, n)} for n in (D, state))
    tensors = {n: meta(*sequence["shape"], dtype=dtype) for n in ("u", "dt", "z")}
    tensors |= {n: meta(*projection["shape"], dtype=dtype) for n in ("B", "C")}
    tensors |= {"A": meta(D, state), "D": meta(D), "dt_bias": meta(D), "h0": meta(B, D, state)}
    tensors |= {"resets": meta(B, T, dtype=torch.bool)} if resets else {}
    return launches("selective_scan", (True,), **tensors)


def diagonal(dtype: torch.dtype, constant: bool, size: Size = USUAL, resets: bool = False) -> list[Launch]:
    B, T, D = size
    a = meta(D, dtype=dtype) if constant else meta(B, T, D, dtype=dtype)
    tensors = {"a": a, "b": meta(B, T, D, dtype=dtype), "h0": meta(B, D, dtype=dtype)}
    tensors |= {"resets": meta(B, T, dtype=torch.bool)} if resets else {}
    return launches("diagonal_scan", (), keep_output=True, **tensors)


SETS: dict[str, Callable[[Size], list[Launch]]] = {
    "gated, by head, bfloat16": lambda size: gated(torch.bfloat16, "head", size=size),
    "gated, by head, float32": lambda size: gated(torch.float32, "head", size=size),
    "gated, by key, bfloat16": lambda size: gated(torch.bfloat16, "key", size=size),
    "gated, by key and bonus, bfloat16": lambda size: gated(torch.bfloat16, "key", bonus=True, size=size),
    "gated, by key, float32": lambda size: gated(torch.float32, "key", size=size),
    "delta, by head, bfloat16": lambda size: delta(torch.bfloat16, "head", size=size),
    "delta, by head, float32": lambda size: delta(torch.float32, "head", size=size),
    "delta, by head, K 256, bfloat16": lambda size: delta(torch.bfloat16, "head", size=size, keys=256),
    "delta, by head, K 256, float32": lambda size: delta(torch.float32, "head", size=size, keys=256),
    "delta, by key, float32": lambda size: delta(torch.float32, "key", size=size),
    "delta, generalized by key, bfloat16": lambda size: delta(torch.bfloat16, "key", general=True, size=size),
    "selective, N 16": lambda size: selective(torch.bfloat16, 16, size),
    "selective, N 64": lambda size: selective(torch.float32, 64, size),
    "diagonal": lambda size: diagonal(torch.float32, False, size),
    "diagonal, complex and constant": lambda size: diagonal(torch.complex64, True, size),
}
# Calls whose tensors have more elements than 32 bits can count, in every form that makes addresses of another kind.
LARGE: dict[str, Callable[[], list[Launch]]] = {name: partial(made, HUGE) for name, made in SETS.items()} | {
    "gated, by head and bonus, float32": lambda: gated(torch.float32, "head", bonus=True, size=HUGE),
    "delta, no decay, float32": lambda: delta(torch.float32, "none", size=HUGE),
    "delta, by head step by step": lambda: delta(torch.float32, "head", size=HUGE, keys=512),
    "selective, resets": lambda: selective(torch.float32, 16, HUGE, resets=True),
    "selective, N 4096": lambda: selective(torch.float32, 4096, Size(1, 131072, 2**20)),
    "selective, a state that 32 bits count": lambda: selective(torch.float32, 64, Size(1, 131072, 2**18)),
    "diagonal, resets": lambda: diagonal(torch.float32, False, HUGE, resets=True),
    "diagonal, complex": lambda: diagonal(torch.complex64, False, HUGE),
}


FIRST = [("diagonal, complex and constant", 80), ("delta, generalized by key, bfloat16", 90)]
REST = [(which, capability) for which in SETS for capability in (80, 90) if (which, capability) not in FIRST]


@pytest.mark.parametrize(
    ("which", "capability"), [*FIRST, *(pytest.param(*one, marks=pytest.mark.exhaustive) for one in REST)]
)
def test_it_compiles_and_fits(which: str, capability: int) -> None:
    recorded = SETS[which](USUAL)
    if "delta" not in which:
        assert len(recorded) >= 4  # a long sequence in few programs: segments and their carry too
    for launch in recorded:
        used = compile_ahead(launch, capability)
        assert used.shared <= SHARED[capability], used
        assert used.spilled <= max(SPILLED[capability], MORE_SPILLED.get(which, 0)), used
        assert used.registers <= 255, used


@pytest.mark.exhaustive
def test_what_does_not_fit_is_seen() -> None:
    """The same kernel with a tile of 64 states and channels more: its registers overflow, and the report says so."""
    launch = next(x for x in selective(torch.bfloat16, 16) if x.kernel.__name__ == "selective_backward_kernel")
    used: Resources = compile_ahead(launch._replace(constants={**launch.constants, "BD": 128}), 90)
    assert used.spilled > SPILLED[90]


@pytest.fixture
def many_segments(monkeypatch: pytest.MonkeyPatch) -> None:
    """However many sequences there are."""
    monkeypatch.setattr(triton_launch, "PROGRAMS", 2**40)


FEW = (
    *("gated, by key and bonus, bfloat16", "delta, by head, bfloat16"),
    *("selective, a state that 32 bits count", "diagonal, resets"),
)


@pytest.mark.parametrize(
    "which", [which if which in FEW else pytest.param(which, marks=pytest.mark.exhaustive) for which in LARGE]
)
def test_no_address_overflows(which: str, many_segments: None) -> None:
    """No offset of a pointer comes from 32 bits that it may not fit into."""
    for launch in LARGE[which]():
        assert wrong_addresses(launch, intermediate_code(launch)) == [], launch.kernel.__name__


def test_the_addresses_of_every_kernel_are_checked(many_segments: None) -> None:
    sources = Path(triton_launch.__file__).parents[1].rglob("triton*.py")
    kernels = {name for source in sources for name in re.findall(r"^def (\w+_kernel)\(", source.read_text(), re.M)}
    assert {launch.kernel.__name__ for made in LARGE.values() for launch in made()} == kernels


def test_an_address_that_overflows_is_seen() -> None:
    """A stride and a number of steps in 32 bits, each of which fits; their product does not."""
    launch = next(x for x in diagonal(torch.float32, False, HUGE) if x.kernel.__name__ == "diagonal_forward_kernel")
    code = intermediate_code(launch)
    assert wrong_addresses(launch, code) == []
    assert "extsi %T : i32 to i64" in code
    narrow = code.replace("extsi %T : i32 to i64", "muli %T, %D : i32")
    assert any("muli %T, %D : i32 may be 8589934592" in line for line in wrong_addresses(launch, narrow))


def test_the_delta_scan_goes_in_chunks_where_it_can() -> None:
    """By a rule: the delta rule without decays by key, unless the sequence is short or the state large."""
    chunks = [delta(torch.bfloat16, "head"), delta(torch.float32, "none", size=Size(1, 32))]
    steps = [delta(torch.bfloat16, "key"), delta(torch.bfloat16, "head", general=True)]
    steps += [delta(torch.float32, "head", size=Size(1, 31)), delta(torch.float32, "head", keys=257)]
    assert {x[0].kernel.__name__ for x in chunks} == {"solve_kernel"}
    assert {x[0].kernel.__name__ for x in steps} == {"forward_kernel"}
