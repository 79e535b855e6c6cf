"""The C++ of scans with a matrix state where it is special: builds, sizes that fill no vector, numbers of threads."""

from __future__ import annotations

import math
from collections.abc import Iterator
from itertools import product
from types import ModuleType
from typing import Any, NamedTuple

import pytest
import ssm_kernels
import torch
from kernels.builds import Build
from kernels.numerics import content, error, normal
from ssm_kernels.delta_scan import cpp as delta_cpp
from ssm_kernels.delta_scan import reference as delta_reference
from ssm_kernels.delta_scan.inputs import Inputs as DeltaInputs
from ssm_kernels.gated_scan import cpp as gated_cpp
from ssm_kernels.gated_scan import reference as gated_reference
from ssm_kernels.gated_scan.inputs import Inputs as GatedInputs
from ssm_kernels.gated_scan.inputs import Options
from ssm_kernels.native import load
from torch import Tensor

CPU = torch.device("cpu")
OPTIONS = Options(32)
MISSING = gated_cpp.unavailable(CPU)
Inputs = GatedInputs | DeltaInputs

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
# Decays of an operation; each in two forms: of the gated scan without and with a bonus, of the delta scan the delta
# rule and the generalized form.
KINDS = {"gated_scan": ("none", "constant", "scalar", "vector"), "delta_scan": ("none", "scalar", "vector")}
FORMS = (False, True)
EACH = [(operation, kind) for operation, kinds in KINDS.items() for kind in kinds]
DECAYING = [(operation, kind) for operation, kind in EACH if kind != "none"]
BY_STEP = [(operation, kind) for operation, kind in DECAYING if kind != "constant"]
FEW = [("gated_scan", "scalar", False), ("gated_scan", "vector", True), ("delta_scan", "vector", False)]
REST = [(*case, form) for case, form in product(EACH, FORMS) if (*case, form) not in FEW]
each = pytest.mark.parametrize(("operation", "kind"), EACH)
decaying = pytest.mark.parametrize(("operation", "kind"), DECAYING)


def make(
    operation: str, sizes: Sizes, kind: str, form: bool, scale: float = 1.0, resets: bool = True, h0: bool = True
) -> Inputs:
    """Everything in float64; log decays are those of a logistic gate, times `scale`."""
    B, T, G, R, K, V = sizes
    H = G * R
    shapes = {"constant": (H,), "scalar": (B, T, H), "vector": (B, T, H, K)}
    q, k, v, state, u = normal(7, (B, T, G, K), (B, T, G, K), (B, T, H, V), (B, H, K, V), (H, K))
    gate = normal(8, shapes[kind])[0] if kind in shapes else None
    log_decay = None if gate is None else torch.nn.functional.logsigmoid(gate) * scale
    where = torch.rand(B, T, generator=torch.Generator().manual_seed(9)) < 0.1 if resets else None
    start = state if h0 else None
    if operation == "gated_scan":
        return GatedInputs(q, k, v, log_decay, start, u if form else None, where)
    k, (gate, read) = 0.9 * torch.nn.functional.normalize(k, dim=-1), normal(12, (B, T, H), (B, T, H, K))
    read = torch.nn.functional.normalize(read, dim=-1)
    if form:
        return DeltaInputs(q, k, v, None, log_decay, start, read, -gate[..., None].sigmoid() * read, where)
    return DeltaInputs(q, k, v, 2 * gate.sigmoid(), log_decay, start, None, None, where)


def cpp(inputs: Inputs) -> ModuleType:
    return gated_cpp if isinstance(inputs, GatedInputs) else delta_cpp


def to(inputs: Inputs, dtype: torch.dtype) -> Inputs:
    return type(inputs)._make(x if x is None or x.dtype == torch.bool else x.to(dtype) for x in inputs)


def adjoints(inputs: Inputs) -> list[Tensor]:
    """dy and dhT."""
    (B, T, H, V), K = inputs.v.shape, inputs.k.shape[3]
    return [x.to(inputs.v.dtype) for x in normal(10, (B, T, H, V), (B, H, K, V))]


def compiled(inputs: Inputs) -> dict[str, Tensor]:
    """Outputs and gradients of the C++."""
    dy, dstate = adjoints(inputs)
    y, state, saved = cpp(inputs).forward(inputs, OPTIONS, True)
    gradients = cpp(inputs).backward(dy, dstate, saved, None, inputs, OPTIONS)
    values = zip(("y", "hT", *inputs._fields), (y, state, *gradients), strict=True)
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
    names, present = inputs._fields, [x for x in leaves if x is not None]
    reference: Any = gated_reference if isinstance(inputs, GatedInputs) else delta_reference
    y, state = reference.run(type(inputs)._make([*leaves, resets]), OPTIONS)
    gradients = torch.autograd.grad((y * dy).sum() + (state * dstate).sum(), present, materialize_grads=True)
    named = [name for name, x in zip(names, [*leaves, None], strict=True) if x is not None]
    return {"y": y.detach(), "hT": state.detach()} | dict(zip(named, gradients, strict=True))


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


@pytest.mark.parametrize("form", FORMS)
@each
def test_every_build_at_odd_sizes(build: Build, operation: str, kind: str, form: bool) -> None:
    for sizes in SIZES:
        inputs = make(operation, sizes, kind, form)
        check(inputs, 1e-13)
        check(to(inputs, torch.float32), 2e-6)


@each
def test_no_state_in_and_no_resets(build: Build, operation: str, kind: str) -> None:
    check(make(operation, Sizes(), kind, False, resets=False, h0=False), 1e-13)


@pytest.mark.parametrize("length", [7, 8, 9, 15, 16, 17, 31, 32, 33, 48, 63, 64, 65])
@pytest.mark.parametrize(("operation", "kind"), BY_STEP)
def test_borders_of_blocks_and_chunks(operation: str, kind: str, length: int) -> None:
    """With resets too, behind which it does not show what a whole chunk does to the state before it."""
    for form, resets in product(FORMS, repeat=2):
        check(make(operation, Sizes(length=length), kind, form, resets=resets), 1e-13)


@each
def test_a_reset_at_every_step(operation: str, kind: str) -> None:
    for form in FORMS:
        inputs = make(operation, Sizes(length=40), kind, form)
        check(inputs._replace(resets=torch.ones_like(inputs.resets)), 1e-13)


@decaying
def test_strong_decays_keep_their_gradients(operation: str, kind: str, build: Build) -> None:
    """Those of the log decays are tiny there: any difference of large sums would drown them."""
    for form in FORMS:
        inputs = make(operation, Sizes(length=80, key=16, value=16), kind, form, scale=30.0, resets=False)
        check(to(inputs, torch.float32), 1e-5)


@decaying
def test_slow_decays_over_a_long_sequence(operation: str, kind: str) -> None:
    """A decay next to 1, rounded and then multiplied by itself 2000 times, would be off by 1e-5.

    The gated scan rounds it every 16 or 32 steps, the delta scan every 8 or 16: its states are off by 4e-6 here.
    """
    sizes = Sizes(batch=1, length=2000, sharing=1, key=3, value=2)
    inputs = make(operation, sizes, kind, operation == "delta_scan", resets=False)
    assert inputs.log_decay is not None
    if isinstance(inputs, DeltaInputs):  # which is to forget by its decay alone
        inputs = inputs._replace(b=torch.zeros_like(inputs.b))
    slow = torch.full_like(inputs.log_decay, -1.1e-4)
    tolerance = 2e-6 if operation == "gated_scan" else 1e-5
    check(to(inputs._replace(log_decay=slow, q=inputs.q.abs(), k=inputs.k.abs()), torch.float32), tolerance)


@decaying
@pytest.mark.parametrize("value", [-math.inf, -1e38, -1e4, -1e-45, 0.0])
def test_decays_at_the_ends(value: float, operation: str, kind: str, build: Build) -> None:
    """Exactly 0 and exactly 1 where they should be, for single steps and for whole sequences."""
    for form in FORMS:
        inputs = make(operation, Sizes(), kind, form)
        assert inputs.log_decay is not None
        for chosen in (torch.ones_like(inputs.log_decay, dtype=torch.bool), normal(11, inputs.log_decay.shape)[0] > 0):
            log_decay = torch.where(chosen, value, inputs.log_decay)
            check(to(inputs._replace(log_decay=log_decay), torch.float32), 2e-6)


@each
@pytest.mark.parametrize("sizes", [Sizes(batch=1, sharing=5), Sizes(batch=3, groups=2), Sizes(batch=9, sharing=1)])
def test_the_same_bits_for_any_number_of_threads(sizes: Sizes, operation: str, kind: str) -> None:
    for form in FORMS:
        inputs = to(make(operation, sizes, kind, form), torch.float32)
        results = []
        for threads in (1, 2, 3, 1):
            torch.set_num_threads(threads)
            results.append(compiled(inputs))
        for other in results[1:]:
            assert all(torch.equal(results[0][name], other[name]) for name in other)


@pytest.mark.parametrize("operation", KINDS)
def test_what_is_kept_does_not_change_the_outputs(operation: str) -> None:
    for kind, form in product(KINDS[operation], FORMS):
        inputs = make(operation, Sizes(), kind, form)
        kept, unkept = (cpp(inputs).forward(inputs, OPTIONS, save) for save in (True, False))
        assert torch.equal(kept[0], unkept[0])
        assert torch.equal(kept[1], unkept[1])
        assert unkept[2].numel() == 0


@each
@pytest.mark.parametrize("length", [20, 32, 45, 100])
@pytest.mark.parametrize("h0", [False, True])
def test_what_is_left_out_is_zero(operation: str, kind: str, length: int, h0: bool) -> None:
    """No state before, or nothing that depends on the one after: the same bits as with zeros."""
    given = make(operation, Sizes(length=length, key=16, value=16), kind, False, resets=False)
    given = given if h0 else given._replace(h0=torch.zeros_like(given.h0))
    dy, dstate = adjoints(given)

    def gradients(inputs: Inputs, dstate: Tensor | None) -> list[Tensor]:
        saved = cpp(inputs).forward(inputs, OPTIONS, True)[2]
        found = cpp(inputs).backward(dy, dstate, saved, None, inputs, OPTIONS)
        return [x for name, x in zip(inputs._fields, found, strict=True) if x is not None and name != "h0"]

    short = given if h0 else given._replace(h0=None)
    for mine, zeros in ((None, torch.zeros_like(dstate)), (dstate, dstate)):
        expected = gradients(given, zeros)
        assert len(expected) == 3 + (kind != "none") + (operation == "delta_scan")
        assert all(map(torch.equal, gradients(short, mine), expected))


@pytest.mark.parametrize("operation", KINDS)
def test_half_precision_is_read_and_written(operation: str) -> None:
    inputs = to(make(operation, Sizes(), "scalar", False), torch.float32)
    mixed = inputs._replace(v=inputs.v.bfloat16(), q=inputs.q.half())
    y, state, _ = cpp(mixed).forward(mixed, OPTIONS, False)
    assert (y.dtype, state.dtype) == (torch.bfloat16, torch.float32)
    assert error(state, expected(to(mixed, torch.float64))["hT"]) < 2e-6


@pytest.mark.parametrize(
    ("operation", "kind", "form"), [*FEW, *(pytest.param(*case, marks=pytest.mark.exhaustive) for case in REST)]
)
def test_gradients_are_those_of_finite_differences(operation: str, kind: str, form: bool) -> None:
    inputs = make(operation, Sizes(length=19), kind, form)
    present = {name: x.requires_grad_() for name, x in inputs._asdict().items() if x is not None and name != "resets"}

    def scan(*values: Tensor) -> Any:
        named = dict(zip(present, values, strict=True))
        return getattr(ssm_kernels, operation)(**named, resets=inputs.resets, backend="cpp")

    torch.use_deterministic_algorithms(False)
    assert torch.autograd.gradcheck(scan, list(present.values()))


@pytest.mark.parametrize("operation", KINDS)
def test_strides_are_of_no_concern(operation: str) -> None:
    """Inputs that are views, and a gradient that is expanded."""
    for kind, form in product(KINDS[operation], FORMS):
        same_of_views(make(operation, Sizes(), kind, form))


def same_of_views(inputs: Inputs) -> None:
    views = type(inputs)._make(
        x if x is None or x.dim() < 2 else x.transpose(0, 1).contiguous().transpose(0, 1) for x in inputs
    )
    assert not views.v.is_contiguous()
    assert torch.equal(compiled(views)["y"], compiled(inputs)["y"])
    y, state, saved = cpp(inputs).forward(inputs, OPTIONS, True)
    one, zero = torch.ones((), dtype=y.dtype), torch.zeros((), dtype=y.dtype)
    expanded, dense = (
        cpp(inputs).backward(dy, dstate, saved, None, inputs, OPTIONS)
        for dy, dstate in (
            (one.expand(y.shape), zero.expand(state.shape)),
            (torch.ones_like(y), torch.zeros_like(state)),
        )
    )
    assert all(torch.equal(a, b) for a, b in zip(expanded, dense, strict=True) if a is not None)


def test_infinite_values_reach_nothing_before_them() -> None:
    """Not within a block either."""
    for kind, form in product(KINDS["delta_scan"], FORMS):
        inputs = make("delta_scan", Sizes(length=6), kind, form, resets=False)
        whole = compiled(inputs)["y"]
        inputs.v[:, 4] = math.inf
        assert torch.equal(compiled(inputs)["y"][:, :4], whole[:, :4])


def test_both_sides_agree_on_chunks_and_blocks() -> None:
    assert load(gated_cpp.SOURCE).gated_scan_chunk() == gated_cpp.CHUNK
    assert load(delta_cpp.SOURCE).delta_scan_chunk() == delta_cpp.CHUNK
    assert load(delta_cpp.SOURCE).delta_scan_tokens() == delta_cpp.TOKENS


@pytest.mark.parametrize("module", [gated_cpp, delta_cpp])
def test_what_cannot_run_is_said(module: ModuleType) -> None:
    assert module.unavailable(CPU) is None
    assert module.unavailable(torch.device("cuda")) == "it runs on the CPU, not on cuda"
