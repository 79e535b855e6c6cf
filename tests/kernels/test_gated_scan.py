"""The gated scan: equal to its oracles in outputs, final state and gradients, at every decay, however it is cut."""

from __future__ import annotations

import itertools
import math
from typing import NamedTuple

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from kernels.numerics import error, normal, with_gradients, worst
from ssm_kernels import gated_scan
from torch import Tensor

DECAYS = ("one", "zero", "tiny", "usual", "wide", "mixed")


class Case(NamedTuple):
    """Sizes and contents of a scan."""

    seed: int
    batch: int = 2
    length: int = 40
    groups: int = 1
    sharing: int = 2  # heads a group
    key: int = 4
    value: int = 3
    decay: str = "usual"

    def inputs(self) -> list[Tensor]:
        """q, k, v, log_decay and h0 in float64."""
        heads = self.groups * self.sharing
        shapes = [(self.batch, self.length, self.groups, self.key)] * 2 + [(self.batch, self.length, heads, self.value)]
        q, k, v, h0 = normal(self.seed, *shapes, (self.batch, heads, self.key, self.value))
        return [q, k, v, log_decays(self.decay, (self.batch, self.length, heads), self.seed), h0]


def log_decays(kind: str, shape: tuple[int, ...], seed: int) -> Tensor:
    """Logs of decays in float64: exactly 1, exactly 0, next to 1, Mamba-2's own, or anything from 1e-8 to 1e6."""
    generator = torch.Generator().manual_seed(seed + 1)
    uniform = torch.rand(shape, generator=generator, dtype=torch.float64)
    ranges = {"tiny": (-12, -8), "usual": (-3, 0.2), "wide": (-8, 6), "mixed": (-8, 6)}
    low, high = ranges.get(kind, (0, 0))
    values = -(10 ** (low + (high - low) * uniform))
    if kind in ("one", "zero"):
        return torch.full_like(values, 0.0 if kind == "one" else -math.inf)
    if kind == "mixed":
        chosen = torch.randint(4, shape, generator=generator)
        values = values.masked_fill(chosen == 0, 0.0).masked_fill(chosen == 1, -math.inf)
    return values


CASES = st.builds(
    Case,
    seed=st.integers(0, 2**31),
    batch=st.integers(1, 3),
    length=st.integers(1, 70),
    groups=st.integers(1, 3),
    sharing=st.integers(1, 3),
    key=st.integers(1, 5),
    value=st.integers(1, 5),
    decay=st.sampled_from(DECAYS),
)
CHUNKS = st.sampled_from((1, 2, 3, 7, 8, 16, 31, 32, 33, 64, 100))


@settings(deadline=None, max_examples=200)
@given(CASES, CHUNKS, st.booleans())
def test_equals_the_reference(case: Case, chunk: int, zero_start: bool) -> None:
    inputs = case.inputs()[: 4 if zero_start else 5]
    expected = with_gradients(lambda *x: gated_scan(*x, backend="reference"), inputs, case.seed)
    got = with_gradients(lambda *x: gated_scan(*x, chunk=chunk), inputs, case.seed)
    assert worst(got, expected) < 1e-12


def quadratic_form(
    q: Tensor, k: Tensor, v: Tensor, log_decay: Tensor, h0: Tensor
) -> tuple[np.ndarray[tuple[int, ...]], np.ndarray[tuple[int, ...]]]:
    """The unrolled sum, term by term: the decays between two tokens are a product of the decays themselves."""
    Q, K, V, S0 = (x.numpy() for x in (q, k, v, h0))
    a = np.exp(log_decay.numpy())  # (B, T, H)
    batch, length, heads, _ = V.shape
    share = heads // K.shape[2]
    y, end = np.zeros_like(V), np.zeros_like(S0)
    for b in range(batch):
        for h in range(heads):
            for t in range(length):
                for s in range(t + 1):
                    weight = Q[b, t, h // share] @ K[b, s, h // share] * np.prod(a[b, s + 1 : t + 1, h])
                    y[b, t, h] += weight * V[b, s, h]
                y[b, t, h] += np.prod(a[b, : t + 1, h]) * Q[b, t, h // share] @ S0[b, h]
                end[b, h] += np.prod(a[b, t + 1 :, h]) * np.outer(K[b, t, h // share], V[b, t, h])
            end[b, h] += np.prod(a[b, :, h]) * S0[b, h]
    return y, end


@pytest.mark.parametrize("backend", ["torch", "reference"])
@pytest.mark.parametrize("decay", DECAYS)
def test_equals_the_unrolled_sum(backend: str, decay: str) -> None:
    case = Case(3, length=13, groups=2, sharing=3, decay=decay)
    expected = [torch.from_numpy(value) for value in quadratic_form(*case.inputs())]
    assert worst(gated_scan(*case.inputs(), chunk=5, backend=backend), expected) < 1e-13


@pytest.mark.parametrize("chunk", [3, 16])
def test_gradients_are_those_of_finite_differences(chunk: int) -> None:
    inputs = [x.requires_grad_() for x in Case(5, batch=1, length=7, groups=2, sharing=2, key=2, value=2).inputs()]
    assert torch.autograd.gradcheck(lambda *x: gated_scan(*x, chunk=chunk), inputs)


@settings(deadline=None, max_examples=100)
@given(CASES, CHUNKS, st.lists(st.integers(1, 69), max_size=3))
def test_cutting_it_anywhere_changes_nothing(case: Case, chunk: int, cuts: list[int]) -> None:
    borders = [0, *sorted({cut for cut in cuts if cut < case.length}), case.length]

    def in_pieces(q: Tensor, k: Tensor, v: Tensor, log_decay: Tensor, state: Tensor) -> tuple[Tensor, Tensor]:
        outputs = []
        for start, end in itertools.pairwise(borders):
            piece = (x[:, start:end] for x in (q, k, v, log_decay))
            y, state = gated_scan(*piece, state, chunk=chunk)
            outputs.append(y)
        return torch.cat(outputs, 1), state

    whole = with_gradients(lambda *x: gated_scan(*x, chunk=chunk), case.inputs(), case.seed)
    assert worst(with_gradients(in_pieces, case.inputs(), case.seed), whole) < 1e-12


@pytest.mark.parametrize("times", [1, 30])
@pytest.mark.parametrize("chunk", [8, 32, 64])
def test_float32_loses_little_even_at_strong_decay(times: int, chunk: int) -> None:
    """Against float64 on the same numbers, outputs and every gradient; sums of logs that cancel lose 1e-3 at 30x."""
    inputs = [x.float() for x in Case(11, length=300, groups=2, key=16, value=16).inputs()]
    inputs[3] = inputs[3] * times
    exact = with_gradients(lambda *x: gated_scan(*x, backend="reference"), [x.double() for x in inputs], 0)
    got = with_gradients(lambda *x: gated_scan(*x, chunk=chunk), inputs, 0)
    assert {x.dtype for x in got} == {torch.float32}
    assert worst(got, exact) < 1e-6


@settings(deadline=None, max_examples=100)
@given(CASES, CHUNKS, st.sampled_from((1.0, 1e4)))
def test_nothing_becomes_infinite_at_any_decay(case: Case, chunk: int, scale: float) -> None:
    inputs = [x.float() for x in case.inputs()]
    inputs[3] = inputs[3] * scale
    results = with_gradients(lambda *x: gated_scan(*x, chunk=chunk), inputs, case.seed)
    assert all(x.isfinite().all() for x in results)


@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.bfloat16, 4e-3), (torch.float16, 5e-4)])
def test_half_precision_inputs_are_scanned_in_float32(dtype: torch.dtype, tolerance: float) -> None:
    inputs = [x.to(dtype) for x in Case(13, length=70, decay="mixed").inputs()]
    exact = with_gradients(lambda *x: gated_scan(*x, backend="reference"), [x.double() for x in inputs], 0)
    got = with_gradients(gated_scan, inputs, 0)
    y, state = got[:2]
    assert (y.dtype, state.dtype) == (dtype, torch.float32)
    assert error(state, exact[1]) < 1e-6
    assert worst(got, exact) < tolerance


def test_autocast_does_not_reach_the_scan() -> None:
    """A product of decays in bfloat16 would be wrong by 1%, and a state in bfloat16 forgets small additions."""
    for length in (70, 20):  # several chunks, and one
        q, k, v, log_decay, h0 = (x.float() for x in Case(17, length=length).inputs())
        for start in (h0, None):
            expected = gated_scan(q, k, v, log_decay, start)
            with torch.autocast("cpu", torch.bfloat16):
                got = gated_scan(q, k, v, log_decay, start)
            assert all(torch.equal(a, b) and a.dtype == b.dtype for a, b in zip(got, expected, strict=True))


def test_inference_leaves_training_alone() -> None:
    """Constants that were made in inference mode must not reach a graph."""
    inputs = Case(19, length=29).inputs()
    with torch.inference_mode():
        quiet = gated_scan(*inputs, chunk=29)
    results = with_gradients(lambda *x: gated_scan(*x, chunk=29), inputs, 0)
    assert torch.equal(quiet[0], results[0])


def test_the_same_call_gives_the_same_bits() -> None:
    inputs = [x.float() for x in Case(23, length=70, decay="mixed").inputs()]
    one, two = (with_gradients(gated_scan, inputs, 0) for _ in range(2))
    assert all(torch.equal(a, b) for a, b in zip(one, two, strict=True))


def test_any_layout_of_memory_will_do() -> None:
    q, k, v, log_decay, h0 = Case(29).inputs()
    expected = gated_scan(q, k, v, log_decay, h0[:1].expand_as(h0), chunk=8)
    strided = [x.transpose(1, 2).contiguous().transpose(1, 2) for x in (q, k, v, log_decay)]
    assert worst(gated_scan(*strided, h0[:1].expand_as(h0), chunk=8), expected) < 1e-15


@pytest.mark.parametrize(
    ("change", "named"),
    [
        ({"q": (2, 5, 1, 3)}, r"q \(2, 5, 1, 3\)"),
        ({"k": (2, 5, 4)}, r"k \(2, 5, 4\)"),
        ({"v": (2, 6, 2, 3)}, r"v \(2, 6, 2, 3\)"),
        ({"v": (2, 5, 3, 3), "q": (2, 5, 2, 4), "k": (2, 5, 2, 4)}, r"G must divide H.*v \(2, 5, 3, 3\)"),
        ({"log_decay": (2, 5, 1)}, r"= \(2, 5, 2\); got log_decay \(2, 5, 1\)"),
        ({"h0": (2, 2, 3, 4)}, r"= \(2, 2, 4, 3\); got h0 \(2, 2, 3, 4\)"),
        ({"q": (2, 0, 1, 4), "k": (2, 0, 1, 4), "v": (2, 0, 2, 3), "log_decay": (2, 0, 2)}, "T >= 1"),
    ],
)
def test_wrong_shapes_are_named(change: dict[str, tuple[int, ...]], named: str) -> None:
    shapes = {"q": (2, 5, 1, 4), "k": (2, 5, 1, 4), "v": (2, 5, 2, 3), "log_decay": (2, 5, 2), "h0": (2, 2, 4, 3)}
    with pytest.raises(ValueError, match=named):
        gated_scan(*(torch.zeros(shape) for shape in (shapes | change).values()))


def test_wrong_settings_are_named() -> None:
    inputs = Case(1).inputs()
    with pytest.raises(ValueError, match="unknown backend 'cuda', expected torch or reference"):
        gated_scan(*inputs, backend="cuda")
    with pytest.raises(ValueError, match="chunk must be at least 1, got 0"):
        gated_scan(*inputs, chunk=0)
