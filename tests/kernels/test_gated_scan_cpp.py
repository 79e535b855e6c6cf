"""The C++ of the gated scan where it is special: builds, sizes that fill no vector, numbers of threads."""

from __future__ import annotations

import math
from collections.abc import Iterator
from itertools import product
from typing import NamedTuple

import pytest
import torch
from kernels.builds import Build
from kernels.numerics import content, error, normal
from ssm_kernels import gated_scan
from ssm_kernels.gated_scan import cpp, reference
from ssm_kernels.gated_scan.inputs import Inputs, Options
from ssm_kernels.native import load
from torch import Tensor

CPU = torch.device("cpu")
OPTIONS = Options(32)
NAMES = ("y", "hT", "q", "k", "v", "log_decay", "h0", "bonus")
MISSING = cpp.unavailable(CPU)

pytestmark = pytest.mark.skipif(MISSING is not None, reason=str(MISSING))
_known: dict[bytes, dict[str, Tensor]] = {}  # what the reference says is computed once for all instruction sets


class Sizes(NamedTuple):
    """B, T, G, heads a group, K, V: the defaults fill neither a vector, nor a tile, nor a chunk."""

    batch: int = 2
    length: int = 45
    groups: int = 1
    sharing: int = 2
    key: int = 5
    value: int = 3


SIZES = (
    Sizes(),
    Sizes(batch=1, length=1, sharing=1, key=1, value=1),
    Sizes(length=32, key=16, value=16),
    Sizes(length=33, groups=2, sharing=3, key=17, value=33),
    Sizes(length=16, groups=3, sharing=1, key=64, value=7),
    Sizes(batch=1, length=100, key=8, value=64),
    Sizes(batch=9, length=31, key=20, value=48),
)
KINDS = ("none", "constant", "scalar", "vector")
FEW = [("scalar", False), ("vector", True)]
REST = [case for case in product(KINDS, (False, True)) if case not in FEW]


def make(sizes: Sizes, kind: str, bonus: bool, scale: float = 1.0, resets: bool = True, h0: bool = True) -> Inputs:
    """Everything in float64; log decays are those of a logistic gate, times `scale`."""
    B, T, G, R, K, V = sizes
    H = G * R
    shapes = {"constant": (H,), "scalar": (B, T, H), "vector": (B, T, H, K)}
    q, k, v, state, u = normal(7, (B, T, G, K), (B, T, G, K), (B, T, H, V), (B, H, K, V), (H, K))
    gate = normal(8, shapes[kind])[0] if kind in shapes else None
    log_decay = None if gate is None else torch.nn.functional.logsigmoid(gate) * scale
    where = torch.rand(B, T, generator=torch.Generator().manual_seed(9)) < 0.1
    return Inputs(q, k, v, log_decay, state if h0 else None, u if bonus else None, where if resets else None)


def to(inputs: Inputs, dtype: torch.dtype) -> Inputs:
    return Inputs(*(x if x is None or x.dtype == torch.bool else x.to(dtype) for x in inputs))


def adjoints(inputs: Inputs) -> list[Tensor]:
    """dy and dhT."""
    (B, T, H, V), K = inputs.v.shape, inputs.k.shape[3]
    return [x.to(inputs.v.dtype) for x in normal(10, (B, T, H, V), (B, H, K, V))]


def compiled(inputs: Inputs) -> dict[str, Tensor]:
    """Outputs and gradients of the C++."""
    dy, dstate = adjoints(inputs)
    y, state, saved = cpp.forward(inputs, OPTIONS, True)
    gradients = cpp.backward(dy, dstate, saved, None, inputs, OPTIONS)[:6]
    values = zip(NAMES, (y, state, *gradients), strict=True)
    return {name: value for name, value in values if value is not None}


def expected(inputs: Inputs) -> dict[str, Tensor]:
    """Outputs and gradients of the reference in float64, for these very inputs."""
    key = content(*inputs)
    if key not in _known:
        _known[key] = _reference(inputs)
    return _known[key]


def _reference(inputs: Inputs) -> dict[str, Tensor]:
    dy, dstate = (x.double() for x in adjoints(inputs))
    *tensors, resets = to(inputs, torch.float64)
    leaves = [None if x is None else x.detach().requires_grad_() for x in tensors]
    y, state = reference.run(Inputs(*leaves, resets), OPTIONS)
    names = [name for name, x in zip(NAMES[2:], leaves, strict=True) if x is not None]
    present = [x for x in leaves if x is not None]
    gradients = torch.autograd.grad((y * dy).sum() + (state * dstate).sum(), present, materialize_grads=True)
    return {"y": y.detach(), "hT": state.detach()} | dict(zip(names, gradients, strict=True))


def check(inputs: Inputs, tolerance: float) -> None:
    got, right = compiled(inputs), expected(inputs)
    assert got.keys() == right.keys()
    errors = {name: error(got[name], right[name]) for name in right}
    assert all(value < tolerance for value in errors.values()), errors  # a NaN is not smaller


@pytest.fixture(autouse=True)
def outputs_start_as_nan() -> Iterator[None]:
    before = torch.are_deterministic_algorithms_enabled()
    torch.use_deterministic_algorithms(True)
    assert torch.utils.deterministic.fill_uninitialized_memory
    yield
    torch.use_deterministic_algorithms(before)


@pytest.fixture(autouse=True)
def one_thread() -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.mark.parametrize("bonus", [False, True])
@pytest.mark.parametrize("kind", KINDS)
def test_every_build_at_odd_sizes(build: Build, kind: str, bonus: bool) -> None:
    for sizes in SIZES:
        inputs = make(sizes, kind, bonus)
        check(inputs, 1e-13)
        check(to(inputs, torch.float32), 2e-6)


@pytest.mark.parametrize("kind", KINDS)
def test_no_state_in_and_no_resets(build: Build, kind: str) -> None:
    check(make(Sizes(), kind, False, resets=False, h0=False), 1e-13)


@pytest.mark.parametrize("length", [15, 16, 17, 31, 32, 33, 48, 63, 64, 65])
@pytest.mark.parametrize("kind", ["scalar", "vector"])
def test_borders_of_blocks_and_chunks(kind: str, length: int) -> None:
    """With resets too, behind which it does not show what a whole chunk does to the state before it."""
    for bonus, resets in product((False, True), repeat=2):
        check(make(Sizes(length=length), kind, bonus, resets=resets), 1e-13)


@pytest.mark.parametrize("kind", ["constant", "scalar", "vector"])
def test_strong_decays_keep_their_gradients(kind: str, build: Build) -> None:
    """Those of the log decays are tiny there: any difference of large sums would drown them."""
    for bonus in (False, True):
        inputs = make(Sizes(length=80, key=16, value=16), kind, bonus, scale=30.0, resets=False)
        check(to(inputs, torch.float32), 1e-5)


@pytest.mark.parametrize("kind", ["constant", "scalar", "vector"])
def test_slow_decays_over_a_long_sequence(kind: str) -> None:
    """A decay next to 1, rounded and then multiplied by itself 2000 times, would be off by 1e-5."""
    inputs = make(Sizes(batch=1, length=2000, sharing=1, key=3, value=2), kind, False, resets=False)
    assert inputs.log_decay is not None
    slow = torch.full_like(inputs.log_decay, -1.1e-4)
    check(to(inputs._replace(log_decay=slow, q=inputs.q.abs(), k=inputs.k.abs()), torch.float32), 2e-6)


@pytest.mark.parametrize("kind", ["constant", "scalar", "vector"])
@pytest.mark.parametrize("value", [-math.inf, -1e38, -1e4, -1e-45, 0.0])
def test_decays_at_the_ends(value: float, kind: str, build: Build) -> None:
    """Exactly 0 and exactly 1 where they should be, for single steps and for whole sequences."""
    for bonus in (False, True):
        inputs = make(Sizes(), kind, bonus)
        assert inputs.log_decay is not None
        for chosen in (torch.ones_like(inputs.log_decay, dtype=torch.bool), normal(11, inputs.log_decay.shape)[0] > 0):
            log_decay = torch.where(chosen, value, inputs.log_decay)
            check(to(inputs._replace(log_decay=log_decay), torch.float32), 2e-6)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("sizes", [Sizes(batch=1, sharing=5), Sizes(batch=3, groups=2), Sizes(batch=9, sharing=1)])
def test_the_same_bits_for_any_number_of_threads(sizes: Sizes, kind: str) -> None:
    for bonus in (False, True):
        inputs = to(make(sizes, kind, bonus), torch.float32)
        results = []
        for threads in (1, 2, 3, 1):
            torch.set_num_threads(threads)
            results.append(compiled(inputs))
        for other in results[1:]:
            assert all(torch.equal(results[0][name], other[name]) for name in other)


def test_kept_states_do_not_change_the_outputs() -> None:
    inputs = make(Sizes(), "vector", True)
    kept, unkept = (cpp.forward(inputs, OPTIONS, save) for save in (True, False))
    assert torch.equal(kept[0], unkept[0])
    assert torch.equal(kept[1], unkept[1])
    assert kept[2].shape == cpp.saved_shape(inputs, OPTIONS)
    assert unkept[2].numel() == 0


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("length", [20, 32, 45, 100])
@pytest.mark.parametrize("h0", [False, True])
def test_what_is_left_out_is_zero(kind: str, length: int, h0: bool) -> None:
    """No state before, or nothing that depends on the one after: the same bits as with zeros."""
    given = make(Sizes(length=length, key=16, value=16), kind, False, resets=False)
    given = given if h0 else given._replace(h0=torch.zeros_like(given.h0))
    dy, dstate = adjoints(given)

    def gradients(inputs: Inputs, dstate: Tensor | None) -> list[Tensor]:
        saved = cpp.forward(inputs, OPTIONS, True)[2]
        found = cpp.backward(dy, dstate, saved, None, inputs, OPTIONS)
        return [x for name, x in zip(Inputs._fields, found, strict=True) if x is not None and name != "h0"]

    short = given if h0 else given._replace(h0=None)
    for mine, zeros in ((None, torch.zeros_like(dstate)), (dstate, dstate)):
        expected = gradients(given, zeros)
        assert len(expected) == 3 + (kind != "none")
        assert all(map(torch.equal, gradients(short, mine), expected))


def test_half_precision_is_read_and_written() -> None:
    inputs = to(make(Sizes(), "scalar", False), torch.float32)
    mixed = inputs._replace(v=inputs.v.bfloat16(), q=inputs.q.half())
    y, state, _ = cpp.forward(mixed, OPTIONS, False)
    assert (y.dtype, state.dtype) == (torch.bfloat16, torch.float32)
    assert error(state, reference.run(to(mixed, torch.float64), OPTIONS)[1]) < 2e-6


@pytest.mark.parametrize(
    ("kind", "bonus"), [*FEW, *(pytest.param(*case, marks=pytest.mark.exhaustive) for case in REST)]
)
def test_gradients_are_those_of_finite_differences(kind: str, bonus: bool) -> None:
    *tensors, resets = make(Sizes(length=19), kind, bonus)
    leaves = [None if x is None else x.requires_grad_() for x in tensors]

    def scan(*values: Tensor) -> tuple[Tensor, Tensor]:
        rest = iter(values)
        q, k, v = next(rest), next(rest), next(rest)
        log_decay, h0, u = (None if x is None else next(rest) for x in leaves[3:])
        return gated_scan(q, k, v, log_decay, h0, bonus=u, resets=resets, backend="cpp")

    torch.use_deterministic_algorithms(False)
    assert torch.autograd.gradcheck(scan, [x for x in leaves if x is not None])


def test_strides_are_of_no_concern() -> None:
    """Inputs that are views, and a gradient that is expanded."""
    inputs = make(Sizes(), "vector", True)
    views = Inputs(*(x if x is None else x.transpose(0, 1).contiguous().transpose(0, 1) for x in inputs))
    assert not views.v.is_contiguous()
    assert torch.equal(compiled(views)["y"], compiled(inputs)["y"])
    y, _, saved = cpp.forward(inputs, OPTIONS, True)
    one, state = torch.ones((), dtype=y.dtype), torch.zeros((), dtype=y.dtype)
    shape = inputs.h0.shape if inputs.h0 is not None else ()
    expanded = cpp.backward(one.expand(y.shape), state.expand(shape), saved, None, inputs, OPTIONS)
    dense = cpp.backward(torch.ones_like(y), torch.zeros(shape, dtype=y.dtype), saved, None, inputs, OPTIONS)
    assert all(torch.equal(a, b) for a, b in zip(expanded[:6], dense[:6], strict=True) if a is not None)


def test_both_sides_agree_on_the_chunk() -> None:
    assert load(cpp.SOURCE).gated_scan_chunk() == cpp.CHUNK


def test_what_cannot_run_is_said() -> None:
    assert cpp.unavailable(CPU) is None
    assert cpp.unavailable(torch.device("cuda")) == "it runs on the CPU, not on cuda"
