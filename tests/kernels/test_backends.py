"""The choice of the backend, and the errors of wrong calls."""

from __future__ import annotations

import logging
import subprocess
import sys
import threading
from importlib import import_module
from inspect import signature
from typing import Any

import pytest
import ssm_kernels
import torch
from kernels.cases import CPU, PAIRS
from ssm_kernels import BackendError, backends, use_backend
from ssm_kernels.operators import BackendFunctions
from ssm_kernels.testing.cases import NORM, OPERATIONS, Case, make

DTYPES = {"integers": torch.int64, "complex": torch.complex128}
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
    "delta_scan": {
        "q": [(2, 5, 1, 3), (2, 5, 4)],
        "k": [(2, 5, 4), (2, 4, 2, 4)],
        "v": [(2, 6, 4, 6), (2, 5, 3, 6), (2, 5, 6)],
        "beta": [(2, 5, 2), (2, 5, 4, 4)],
        "log_decay": [(2, 5, 1), (4,), (2, 5, 4, 3), (2, 5)],
        "h0": [(2, 4, 6, 4)],
        "a": [(2, 5, 2, 4), (2, 5, 4)],
        "b": [(2, 5, 4, 6)],
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


def case_with(operation: str, name: str) -> Case:
    """A case with this input, and with several heads and groups."""
    several = {"gated_scan": (28,), "delta_scan": (20, 23)}.get(operation, (0,))
    made = [make(operation, length=5, variant=variant, resets=0.5) for variant in several]
    return next(case for case in made if name in case.tensors or name == "resets")


@pytest.mark.parametrize(
    ("operation", "name", "shape"),
    [(operation, name, shape) for operation, of in WRONG.items() for name, shapes in of.items() for shape in shapes],
)
def test_error_of_wrong_shapes(operation: str, name: str, shape: tuple[int, ...]) -> None:
    case = case_with(operation, name)
    tensors = {**case.tensors, "resets": case.resets}
    assert name in tensors
    tensors[name] = torch.zeros(shape, dtype=torch.bool if name == "resets" else torch.float64)
    shown = str(shape).replace("(", r"\(").replace(")", r"\)")
    with pytest.raises(ValueError, match=rf"^{operation}: .*got.*\b{name} {shown}[^\n]*$"):
        getattr(ssm_kernels, operation)(**tensors)


ARGUMENTS = [
    (operation, name, value)
    for operation in (*OPERATIONS, NORM)
    for name in import_module(f"ssm_kernels.{operation}").operator.inputs._fields
    for value in ("number", "integers", "complex", "nothing")
]


@pytest.mark.parametrize(("operation", "name", "value"), ARGUMENTS)
def test_error_of_wrong_types(operation: str, name: str, value: str) -> None:
    case = case_with(operation, name)
    tensors: dict[str, Any] = {**case.tensors} | ({} if operation == NORM else {"resets": case.resets})
    function = getattr(ssm_kernels, operation)
    optional = signature(function).parameters[name].default is None
    if (value == "nothing" and optional) or (value == "complex" and operation == "diagonal_scan" and name != "resets"):
        return
    values = {"number": 0.5, "nothing": None}
    tensors[name] = values.get(value) if value in values else tensors[name].to(DTYPES[value])
    got = {"number": "float", "nothing": "None", "integers": "int64", "complex": "complex128"}[value]
    wanted = "bool" if name == "resets" else "floating"
    with pytest.raises(ValueError, match=rf"^{operation}: {name} must be a {wanted}[^\n]*; got [^\n]*{got}$"):
        function(**tensors)


@pytest.mark.parametrize("operation", OPERATIONS)
def test_auto_chooses_a_backend_that_can_run(operation: str) -> None:
    case = make(operation).to(torch.float32)
    y, _ = case.function("auto")(*case.values)
    name = ssm_kernels.chosen()[f"{operation} on cpu"]
    assert (operation, name) in PAIRS
    assert torch.equal(y, case.function(name)(*case.values)[0])


def test_the_choice_is_logged_once(caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(backends, "_chosen", {})
    caplog.set_level(logging.INFO, "ssm_kernels")
    case = make("causal_conv1d")
    for _ in range(3):
        case.function("auto")(*case.values)
    lines = [record.getMessage() for record in caplog.records if record.name == "ssm_kernels"]
    assert len(lines) == 1
    assert lines[0].startswith("causal_conv1d on cpu: backend ")


def test_without_a_compiler_torch_runs_and_one_line_is_logged(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(backends, "_chosen", {})
    monkeypatch.setattr(backends, "_warned", set())
    for operation in ("gated_scan", "causal_conv1d", "gated_rms_norm"):
        module = backends.module(operation, "cpp")
        monkeypatch.setattr(module, "unavailable", lambda device: "there is no C++ compiler")
        case = make(operation)
        case.function("auto")(*case.values)
    case = make("gated_scan")
    assert [record.getMessage() for record in caplog.records] == [
        "gated_scan on cpu: backend torch (cpp: there is no C++ compiler)"
    ]
    with pytest.raises(BackendError, match="backend 'cpp' cannot run on cpu: there is no C"):
        case.function("cpp")(*case.values)


@pytest.mark.parametrize("operation", OPERATIONS)
def test_use_backend(operation: str, monkeypatch: pytest.MonkeyPatch) -> None:
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
        case.function("reference")(*case.values)  # the argument has priority over the block
        assert {name for _, name in asked} == {"reference"}
    with pytest.raises(BackendError, match=r"unknown backend 'torhc'.*did you mean 'torch'"), use_backend("torhc"):
        pass


@pytest.mark.parametrize("operation", OPERATIONS)
@pytest.mark.parametrize("name", ["triton", "cuda"])
def test_error_of_a_backend_that_cannot_run(operation: str, name: str) -> None:
    case = make(operation, length=3)
    if name not in backends.available(operation):
        match = f"{operation}: has no backend '{name}'; it has reference, torch"
    else:
        missing = backends.unavailable(operation, name, CPU)
        if missing is None:
            return  # Triton's interpreter runs it
        assert len(missing) > 10
        match = f"{operation}: backend '{name}' cannot run on cpu: "
    with pytest.raises(BackendError, match=match):
        case.function(name)(*case.values)


def test_error_of_wrong_options() -> None:
    gated, convolution = make("gated_scan"), make("causal_conv1d")
    with pytest.raises(ValueError, match="unknown backend 'numpy', expected one of auto, reference"):
        gated.function("numpy")(*gated.values)
    for case, chunk in ((gated, 0), (gated, 1.5), (make("delta_scan"), -1)):
        with pytest.raises(ValueError, match=f"chunk must be a whole number above zero, got {chunk}"):
            case._replace(options={"chunk": chunk}).function("auto")(*case.values)
    with pytest.raises(ValueError, match="unknown activation 'gelu', expected None or silu"):
        convolution._replace(options={"activation": "gelu"}).function("auto")(*convolution.values)


@pytest.mark.parametrize(
    ("change", "groups", "named"),
    [
        ({"weight": (5,)}, 1, r"weight \(5,\)"),
        ({"gate": (2, 5)}, 1, r"gate \(2, 5\)"),
        ({}, 4, r"groups divides D \(groups 4\)"),
        ({}, 0, r"groups 0"),
    ],
)
def test_error_of_wrong_shapes_of_the_norm(change: dict[str, tuple[int, ...]], groups: int, named: str) -> None:
    shapes = {"x": (2, 6), "weight": (6,), "gate": (2, 6)} | change
    with pytest.raises(ValueError, match=named):
        ssm_kernels.gated_rms_norm(*(torch.zeros(shape) for shape in shapes.values()), groups=groups)


def test_error_unless_exactly_one_form_of_the_delta_scan_is_given() -> None:
    shape = (2, 5, 3, 4)
    x = {name: torch.zeros(shape) for name in ("q", "k", "v")}
    beta, a, b = torch.zeros(shape[:3]), torch.zeros(shape), torch.zeros(shape)
    for given in ({}, {"beta": beta, "a": a, "b": b}, {"beta": beta, "a": a}, {"b": b}):
        with pytest.raises(
            ValueError, match=r"^delta_scan: takes either beta .* or both a and b .*; got q \(2, 5, 3, 4\)"
        ):
            ssm_kernels.delta_scan(**x, **given)


def test_blocks_of_two_threads_may_overlap() -> None:
    """The block that began first ends first. The other thread keeps its backend until its own block ends."""
    case = make("causal_conv1d", length=3)
    began, ended = threading.Event(), threading.Event()

    def first() -> None:
        with use_backend("torch"):
            began.set()
            ended.wait()

    thread = threading.Thread(target=first)
    thread.start()
    began.wait()
    with use_backend("reference"):
        ended.set()
        thread.join()
        assert backends._wanted == "reference"
    assert backends._wanted == "auto"
    with use_backend("torch"), use_backend("reference"), use_backend("torch"):
        pass
    assert backends._wanted == "auto"
    case.function("auto")(*case.values)


def few_numbers(inputs: Any) -> str | None:
    """The `unsuited` function of a backend that takes only float32 and up to 6 channels."""
    if any(x is not None and x.dtype == torch.float64 for x in inputs):
        return "takes no float64"
    return f"takes up to 6 channels, got {inputs.x.shape[2]}" if inputs.x.shape[2] > 6 else None


@pytest.mark.parametrize("compiled", [False, True])
def test_auto_skips_backends_that_do_not_support_the_inputs(
    compiled: bool, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    operator = import_module("ssm_kernels.causal_conv1d").operator
    monkeypatch.setattr(backends, "_chosen", {})
    monkeypatch.setattr(operator, "_functions", {name: BackendFunctions() for name in operator.backends})
    monkeypatch.setattr(backends.module("causal_conv1d", "cpp"), "unsuited", few_numbers, raising=False)
    monkeypatch.setattr(backends.module("causal_conv1d", "cpp"), "unavailable", lambda device: None)
    caplog.set_level(logging.INFO, "ssm_kernels")
    asked: list[str] = []

    def served(width: int, dtype: torch.dtype, backend: str = "auto") -> str:
        case = make("causal_conv1d", length=3, width=width).to(dtype)
        function = torch.compile(case.function(backend), backend="eager") if compiled else case.function(backend)
        torch.compiler.reset()
        asked.clear()
        function(*case.values)
        return asked[-1]

    module = backends.module
    monkeypatch.setattr(backends, "module", lambda *names: asked.append(names[1]) or module(*names))
    for _ in range(1 if compiled else 2):
        assert served(6, torch.float32) == "cpp"
        assert served(6, torch.float64) == "torch"
        assert served(7, torch.float32) == "torch"
    assert served(6, torch.float32, "cpp") == "cpp"
    with pytest.raises(BackendError, match=r"^causal_conv1d: backend 'cpp' takes up to 6 channels, got 7$"):
        served(7, torch.float32, "cpp")
    with use_backend("cpp"), pytest.raises(BackendError, match=r"^causal_conv1d: backend 'cpp' takes no float64$"):
        served(6, torch.float64)
    assert [record.getMessage() for record in caplog.records if record.name == "ssm_kernels"] == [
        "causal_conv1d on cpu: backend cpp",
        "causal_conv1d on cpu: backend torch (cpp: takes no float64)",
    ]
    assert ssm_kernels.chosen() == {"causal_conv1d on cpu": "cpp", "causal_conv1d on cpu, not cpp": "torch"}


def test_error_of_a_compiled_call_of_an_unknown_backend() -> None:
    case = make("diagonal_scan", length=3)
    for name, match in (("torhc", "unknown backend 'torhc'.*did you mean 'torch'"), ("cuda", "has no backend 'cuda'")):
        with pytest.raises(BackendError, match=match):
            torch.compile(case.function(name), backend="eager")(*case.values)


def test_ssm_kernels_does_not_import_torch_dynamo() -> None:
    """The import takes longer than torch itself. `constant_when_compiled` sets the same private mark as torch."""
    look = "import sys, ssm_kernels; sys.exit('torch._dynamo' in sys.modules)"
    subprocess.run([sys.executable, "-c", look], check=True)

    def marked() -> None: ...

    def ours() -> None: ...

    torch.compiler.assume_constant_result(marked)
    assert vars(backends.constant_when_compiled(ours)) == vars(marked) != {}


def test_each_device_of_a_machine_has_its_own_choice(monkeypatch: pytest.MonkeyPatch) -> None:
    """The GPUs of a machine may differ."""
    asked: list[torch.device] = []
    monkeypatch.setattr(backends, "_chosen", {})
    monkeypatch.setattr(backends, "unavailable", lambda operation, name, device: asked.append(device))
    devices = [torch.device("cuda", i) for i in range(2)]
    for device in (*devices, *devices):
        assert backends.choose("gated_scan", ("triton",), "auto", device) == "triton"
    assert asked == devices
    assert backends.chosen() == {"gated_scan on cuda": "triton"}
