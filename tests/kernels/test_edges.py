"""Unusual calls: no sequence, no head, resets after infinite values, very long chunks, too little memory."""

from __future__ import annotations

import math
import os
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import ssm_kernels
import torch
from kernels.cases import ALL, ROW, WITH_STATE, exhaustive, run
from ssm_kernels import delta_scan, gated_rms_norm, gated_scan, selective_scan
from ssm_kernels.testing.cases import EVERY, NORM, Case, make, variants
from ssm_kernels.testing.numerics import normal, same_bits, with_gradients, worst
from torch import Tensor

COMPILED = [case for case in ALL if case[1] in ("torch", "cpp")]
ORACLES = [(operation, "reference", variant) for operation, backend, variant in WITH_STATE if backend == "torch"]
# In chunks of matrix states, a reset multiplies the old state by 0. So the old state must be finite.
FINITE = (("gated_scan", "torch"), ("gated_scan", "cpp"), ("delta_scan", "torch"))
FORGETTING = [*ORACLES, *(case for case in COMPILED if case[:2] not in FINITE and case[0] != NORM)]


@pytest.mark.parametrize(ROW, COMPILED)
def test_an_empty_batch(operation: str, backend: str, variant: int, memory_of_nans: None) -> None:
    """Outputs are empty, and parameters have gradients of 0. The larger width makes several groups of channels."""
    for width in (5, 300):
        case = make(operation, 1, length=37, batch=0, width=width, variant=variant, resets=0.5).to(torch.float32)
        got = run(case, backend)
        assert [x.shape for x in got] == [x.shape for x in run(case, "reference")]
        assert all(x.count_nonzero() == 0 for x in got)


@pytest.mark.parametrize("start", [True, False])
@pytest.mark.parametrize(ROW, [*ORACLES, *WITH_STATE])
def test_an_empty_sequence(operation: str, backend: str, variant: int, start: bool, memory_of_nans: None) -> None:
    """The output is empty, and the state stays. Other inputs have gradients of 0."""
    case = make(operation, 1, length=0, variant=variant, resets=0.5, start=start).to(torch.float32)
    y, state, *gradients = with_gradients(case.function(backend), case.values, 0)
    one = make(operation, 1, length=1, variant=variant, start=start).to(torch.float32)
    full = one.function(backend)(*one.values)
    assert (y.shape[0], *y.shape[2:]) == (full[0].shape[0], *full[0].shape[2:])
    assert (y.shape[1], y.dtype, state.dtype) == (0, full[0].dtype, full[1].dtype)
    for name, value, gradient in zip(case.tensors, case.values, gradients, strict=True):
        if name in ("h0", "state"):
            assert torch.equal(state, value.to(state.dtype))
            assert gradient.count_nonzero()
        else:
            assert not gradient.count_nonzero()
    assert start or not state.count_nonzero()


def test_an_empty_sequence_compiles() -> None:
    case = make("gated_scan", 1, length=0).to(torch.float32)
    _, state = torch.compile(case.function("torch"), backend="eager", fullgraph=True)(*case.values)
    assert torch.equal(state, case.tensors["h0"])


@pytest.mark.parametrize("backend", ["torch", "cpp"])
@pytest.mark.parametrize("decay", [(0,), (2, 9, 0), (2, 9, 0, 4)])
def test_no_heads(backend: str, decay: tuple[int, ...], memory_of_nans: None) -> None:
    inputs = normal(1, (2, 9, 1, 4), (2, 9, 1, 4), (2, 9, 0, 3), decay, (2, 0, 4, 3))
    got = with_gradients(lambda *x: gated_scan(*x, backend=backend), inputs, 0)
    assert [x.shape for x in got[2:]] == [x.shape for x in inputs]
    assert all(x.count_nonzero() == 0 for x in got)


def test_no_groups_and_no_states_are_refused() -> None:
    no_groups, no_keys, v = torch.zeros(2, 9, 0, 4), torch.zeros(2, 9, 3, 0), torch.zeros(2, 9, 3, 4)
    for q in (no_groups, no_keys):
        got = re.escape(f"got q {tuple(q.shape)}")
        with pytest.raises(ValueError, match=rf"gated_scan: q and k are .* G > 0 divides H, and K > 0, .*; {got}"):
            gated_scan(q, q, v)
        with pytest.raises(ValueError, match=rf"delta_scan: q and k are .* G > 0 divides H, and K > 0, .*; {got}"):
            delta_scan(q, q, v, v[..., 0])
    u, none = torch.zeros(2, 9, 3), torch.zeros(2, 9, 0)
    with pytest.raises(ValueError, match=r"selective_scan: .* A \(D, N\) with N > 0, .*; got .* A \(3, 0\)"):
        selective_scan(u, u, torch.zeros(3, 0), none, none)


@pytest.mark.parametrize("backend", ["torch", "cpp"])
def test_a_norm_of_no_channels(backend: str) -> None:
    inputs = normal(1, (2, 3, 0), (0,), (2, 3, 0))
    assert [x.shape for x in with_gradients(lambda *x: (gated_rms_norm(*x, backend=backend),), inputs, 0)] == [
        (2, 3, 0),
        *(x.shape for x in inputs),
    ]


@pytest.mark.parametrize("operation", EVERY)
def test_tensors_without_values_are_refused(operation: str) -> None:
    case = make(operation, 1, length=3)
    with pytest.raises(ValueError, match=rf"{operation}: tensors on meta have no values; got .* on meta"):
        case.function("auto")(*(x.to("meta") for x in case.values))


def poisoned(case: Case, at: int, value: float) -> Case:
    """Put `value` into the initial state, and into inputs at step 0 and at the step before `at`."""
    tensors = {n: x.clone() for n, x in case.tensors.items()}
    for name in tensors.keys() & {"u", "B", "b", "k", "v", "x"}:
        tensors[name][:, at - 1] = value
        tensors[name][:, 0] = value
    for name in tensors.keys() & {"h0", "state"}:
        tensors[name][:] = value
    return case._replace(tensors=tensors)


@pytest.mark.parametrize("value", [math.nan, *exhaustive(math.inf)])
@pytest.mark.parametrize("at", [3, *exhaustive(9, 40)])
@pytest.mark.parametrize(ROW, FORGETTING)
def test_a_reset_forgets_values_that_are_not_finite(
    operation: str, backend: str, variant: int, at: int, value: float
) -> None:
    """Outputs, the state, and gradients after the reset are the same as without the steps before it."""
    length = 130  # the torch backend of the diagonal scan cuts this length
    case = make(operation, 2, length=length, variant=variant)
    resets = torch.zeros(2, length, dtype=torch.bool)
    resets[:, [at, at + 3]] = True
    leaves = [x.requires_grad_() for x in poisoned(case, at, value).values]
    y, state = case._replace(resets=resets).function(backend)(*leaves)
    alone = {n: x[:, at:] if n in case.sequences else x for n, x in case.tensors.items() if n not in ("h0", "state")}
    after = case._replace(tensors=alone, resets=resets[:, at:])
    ours = [x.detach().requires_grad_() for x in after.values]
    expected = after.function(backend)(*ours)
    assert worst([y[:, at:], state], expected) < 1e-13
    names = [n for n in case.tensors if n in case.sequences]

    def gradients(outputs: tuple[Tensor, Tensor], tensors: dict[str, Tensor]) -> list[Tensor]:
        weights = [torch.ones_like(x) for x in outputs]
        return list(torch.autograd.grad(outputs, [tensors[n] for n in names], weights))

    got = gradients((y[:, at:], state), dict(zip(case.tensors, leaves, strict=True)))
    assert worst([x[:, at:] for x in got], gradients(expected, dict(zip(alone, ours, strict=True)))) < 1e-12


@pytest.mark.parametrize("variant", variants("gated_scan"))
def test_long_chunks_are_cut(variant: int) -> None:
    """The memory for sums of log decays over pairs of a chunk's tokens grows with the cube of its length."""
    case = make("gated_scan", 6, length=300, batch=1, variant=variant)
    long, longest = (case._replace(options={"chunk": chunk}) for chunk in (128, 4096))
    assert same_bits(run(longest, "torch"), run(long, "torch"))


@pytest.mark.parametrize(ROW, COMPILED)
def test_outputs_and_gradients_are_contiguous(operation: str, backend: str, variant: int) -> None:
    """The operators' fake tensors are contiguous, and torch.compile relies on this."""
    case = make(operation, 7, variant=variant)
    leaves = [x.requires_grad_() for x in case.values]
    y, state = case.function(backend)(*leaves)
    gradients = torch.autograd.grad([y, state], leaves, [torch.ones_like(y), torch.ones_like(state)])
    assert all(x.is_contiguous() for x in (y, state, *gradients))


def few_channels(operation: str) -> tuple[list[Tensor], Callable[..., Tensor]]:
    """Inputs whose backward pass needs tens of MiB of scratch memory, and the call."""
    shapes: dict[str, list[tuple[int, ...]]] = {  # partial sums of gradients over:
        "gated_scan": [(1, 8192, 1, 128), (1, 8192, 1, 128), (1, 8192, 8, 1)],  # heads, for q and k
        "delta_scan": [(1, 8192, 1, 128), (1, 8192, 1, 128), (1, 8192, 8, 1), (1, 8192, 8)],
        "selective_scan": [(1, 64, 2048), (1, 64, 2048), (2048, 512), (1, 64, 512), (1, 64, 512)],  # channels, for B, C
        "causal_conv1d": [(1024, 1, 512), (512, 32)],  # sequences, for the weight
        "diagonal_scan": [(1 << 14,), (256, 1, 1 << 14)],  # sequences, for the constant a
        "gated_rms_norm": [(1 << 16, 512), (512,)],  # rows, for the weight
    }
    inputs = [-x.abs().float() for x in normal(1, *shapes[operation])]

    def call(*values: Tensor) -> Tensor:
        result = getattr(ssm_kernels, operation)(*values, backend="cpp")
        return result if isinstance(result, Tensor) else result[0]

    return inputs, call


STARVED = """
import os, resource, sys
import torch
import torch._dynamo  # torch would import it at its first gradient, where it does not fit into the limit
from kernels.test_edges import few_channels

torch.set_num_threads(1)
for operation in sys.argv[1:]:  # each in a forked process with the memory after the import of torch
    if os.fork() == 0:
        break
    if os.wait()[1]:
        sys.exit(1)
else:
    sys.exit()
inputs, function = few_channels(operation)
leaves = [x.requires_grad_() for x in inputs]
y = function(*leaves)
dy = torch.ones_like(y)
size = int(next(line for line in open("/proc/self/status") if line.startswith("VmSize")).split()[1]) * 1024
refused = 0
for megabytes in range(0, 400, 4):
    resource.setrlimit(resource.RLIMIT_AS, (size + megabytes * 2**20, resource.RLIM_INFINITY))
    try:
        torch.autograd.grad(y, leaves, dy, retain_graph=True)
        break
    except MemoryError as error:
        refused += "not enough memory" in str(error)
    except RuntimeError as error:
        assert "memory" in str(error), error  # an error of torch
assert refused, operation
"""


@pytest.mark.exhaustive
def test_lack_of_memory_is_an_exception() -> None:
    """Compute gradients under a memory limit that rises until they fit. An uncaught C++ exception ends the process."""
    root = Path(__file__).parents[1]
    environment = os.environ | {"PYTHONPATH": os.pathsep.join([str(root), *sys.path]), "OMP_NUM_THREADS": "1"}
    environment["MALLOC_MMAP_THRESHOLD_"] = "65536"  # scratch memory never reuses memory that the imports freed
    command = [sys.executable, "-c", STARVED, *EVERY]
    done = subprocess.run(command, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
