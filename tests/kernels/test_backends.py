"""Which backend serves a call, and what a wrong call is told."""

from __future__ import annotations

import logging

import pytest
import ssm_kernels
import torch
from kernels.cases import CPU, OPERATIONS, PAIRS, make
from ssm_kernels import BackendError, backends, use_backend

WRONG = {
    "diagonal_scan": {
        "b": [(2, 5), (2, 0, 6), (2, 4, 6)],
        "a": [(2, 5, 5), (5,), (2, 6)],
        "h0": [(2, 5), (1, 6)],
        "resets": [(2, 4)],
    },
    "selective_scan": {
        "u": [(2, 5), (2, 4, 6)],
        "dt": [(2, 5, 5)],
        "A": [(5, 4), (6,)],
        "B": [(2, 5, 3)],
        "C": [(2, 4, 4)],
        "D": [(5,)],
        "dt_bias": [(6, 1)],
        "z": [(2, 5, 1)],
        "h0": [(2, 4, 6)],
        "resets": [(2, 5, 1)],
    },
    "gated_scan": {
        "q": [(2, 5, 1, 3), (2, 5, 4)],
        "k": [(2, 5, 4), (2, 4, 2, 4)],
        "v": [(2, 6, 4, 6), (2, 5, 3, 6), (2, 5, 6)],
        "log_decay": [(2, 5, 1), (3,), (2, 5, 4, 3), (2, 5)],
        "h0": [(2, 4, 6, 4)],
        "bonus": [(4,)],
        "resets": [(2,)],
    },
    "causal_conv1d": {
        "x": [(2, 5), (2, 0, 6)],
        "weight": [(4,), (5, 4), (6, 0)],
        "bias": [(5,)],
        "state": [(2, 4, 6), (1, 3, 6)],
        "resets": [(2, 4)],
    },
}


@pytest.mark.parametrize(
    ("operation", "name", "shape"),
    [(operation, name, shape) for operation, of in WRONG.items() for name, shapes in of.items() for shape in shapes],
)
def test_wrong_shapes_are_named(operation: str, name: str, shape: tuple[int, ...]) -> None:
    case = make(operation, length=5, variant=28 if operation == "gated_scan" else 0, resets=0.5)
    tensors = {**case.tensors, "resets": case.resets}
    assert name in tensors
    tensors[name] = torch.zeros(shape, dtype=torch.bool if name == "resets" else torch.float64)
    shown = str(shape).replace("(", r"\(").replace(")", r"\)")
    with pytest.raises(ValueError, match=rf"^{operation}: .*got.*\b{name} {shown}[^\n]*$"):
        getattr(ssm_kernels, operation)(**tensors)


@pytest.mark.parametrize("operation", OPERATIONS)
def test_auto_is_a_backend_that_can_run(operation: str) -> None:
    case = make(operation).to(torch.float32)
    y, _ = case.function("auto")(*case.values)
    name = ssm_kernels.chosen()[f"{operation} on cpu"]
    assert (operation, name) in PAIRS
    assert torch.equal(y, case.function(name)(*case.values)[0])


def test_the_choice_is_said_once(caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(backends, "_chosen", {})
    caplog.set_level(logging.INFO, "ssm_kernels")
    case = make("causal_conv1d")
    for _ in range(3):
        case.function("auto")(*case.values)
    lines = [record.getMessage() for record in caplog.records if record.name == "ssm_kernels"]
    assert len(lines) == 1
    assert lines[0].startswith("causal_conv1d on cpu: backend ")


def test_without_a_compiler_torch_serves_and_one_line_says_so(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(backends, "_chosen", {})
    monkeypatch.setattr(backends.module("gated_scan", "cpp"), "unavailable", lambda device: "there is no C++ compiler")
    case = make("gated_scan")
    case.function("auto")(*case.values)
    assert [record.getMessage() for record in caplog.records] == [
        "gated_scan on cpu: backend torch (cpp: there is no C++ compiler)"
    ]
    with pytest.raises(BackendError, match="backend 'cpp' cannot run on cpu: there is no C"):
        case.function("cpp")(*case.values)


@pytest.mark.parametrize("operation", OPERATIONS)
def test_a_block_takes_the_backend_it_asks_for(operation: str, monkeypatch: pytest.MonkeyPatch) -> None:
    case = make(operation, length=3)
    asked = []
    module = backends.module
    monkeypatch.setattr(backends, "module", lambda *names: asked.append(names) or module(*names))
    with use_backend("torch"):
        case.function("auto")(*case.values)
        assert {name for _, name in asked} == {"torch"}
        with use_backend("reference"):
            asked.clear()
            case.function("auto")(*case.values)
            assert {name for _, name in asked} == {"reference"}
        asked.clear()
        case.function("reference")(*case.values)  # a name counts more than the block
        assert {name for _, name in asked} == {"reference"}
    with pytest.raises(BackendError, match=r"unknown backend 'torhc'.*did you mean 'torch'"), use_backend("torhc"):
        pass


@pytest.mark.parametrize("operation", OPERATIONS)
@pytest.mark.parametrize("name", ["triton", "cuda"])
def test_a_backend_that_cannot_run_says_what_is_missing(operation: str, name: str) -> None:
    case = make(operation, length=3)
    if name not in backends.available(operation):
        match = f"{operation}: has no backend '{name}'; it has reference, torch"
    else:
        missing = backends.unavailable(operation, name, CPU)
        if missing is None:
            return  # it runs here, in Triton's interpreter
        assert len(missing) > 10
        match = f"{operation}: backend '{name}' cannot run on cpu: "
    with pytest.raises(BackendError, match=match):
        case.function(name)(*case.values)


def test_wrong_options_are_named() -> None:
    gated, convolution = make("gated_scan"), make("causal_conv1d")
    with pytest.raises(ValueError, match="unknown backend 'numpy', expected one of auto, reference"):
        gated.function("numpy")(*gated.values)
    with pytest.raises(ValueError, match="chunk must be at least 1, got 0"):
        gated._replace(options={"chunk": 0}).function("auto")(*gated.values)
    with pytest.raises(ValueError, match="unknown activation 'gelu', expected None or silu"):
        convolution._replace(options={"activation": "gelu"}).function("auto")(*convolution.values)
