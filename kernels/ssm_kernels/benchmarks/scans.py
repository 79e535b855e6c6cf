"""Speed of the scans: all backends and peers that can run here, each compared with the float64 oracle first.

On a GPU, the oracle is the backend torch in float64. For its sizes, the step-by-step reference takes minutes, and its
autograd takes more memory than a GPU has.
"""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from statistics import median

import torch
from torch import Tensor

import ssm_kernels
from ssm_kernels import backends
from ssm_kernels.benchmarks.cases import Arguments, Case
from ssm_kernels.benchmarks.race import Contestant, race
from ssm_kernels.benchmarks.scan_peers import peers
from ssm_kernels.testing import numerics
from ssm_kernels.timing import wait

Outputs = tuple[Tensor, Tensor | None]
Scan = Callable[[Arguments], Outputs]

# Largest relative error (norm of the difference over norm) of an implementation that is timed.
TOLERANCE = {torch.float32: 1e-4, torch.bfloat16: 2e-2, torch.float16: 5e-3}
SLOW = ("reference",)  # the oracle is not timed


# The user's settings of Triton's matrix products. On some GPUs, our kernels set them for the whole process.
PRODUCTS = {name: os.environ.get(name) for name in ("DISABLE_MMA_V3", "DISABLE_MMA_V5")}


class DeviceLostError(Exception):
    """A call left the GPU in a state in which every later call fails. The message has the call's name, in one line."""


@dataclass(frozen=True)
class Speed:
    """What was measured of one implementation: times, or the reason why there are none."""

    contestant: str
    milliseconds: tuple[float, ...] = ()
    error: float | None = None  # the largest relative error of an output or gradient
    reason: str | None = None

    @property
    def median(self) -> float:
        """Milliseconds."""
        return median(self.milliseconds)


def scan_speed(case: Case, device: torch.device, repeats: int, seconds: float) -> list[Speed]:
    """Compare all implementations with the oracle, then time those that are right.

    Args:
        repeats: largest number of timed calls of each contestant.
        seconds: largest total time of these calls, for each contestant.

    Raises:
        DeviceLostError: an implementation broke the CUDA context.
    """
    arguments = case.arguments(device)
    expected = oracle(case, arguments, device)
    contestants: list[Contestant] = []
    errors: dict[str, float] = {}
    reasons: dict[str, str] = {}
    for name, scan in _contestants(case, device):
        if isinstance(scan, str):
            reasons[name] = scan
            continue
        with nullcontext() if name in backends.available(case.operation) else _as_for_its_users():
            error, call = _checked(name, scan, case, arguments, expected)
        if error is not None:
            errors[name] = error
        if isinstance(call, str):
            reasons[name] = call
        else:
            contestants.append(Contestant(name, call))
    del expected
    # The limits of a CPU are measured with data in the caches, those of a GPU with data in its memory.
    race(contestants, repeats, seconds, device, twice=device.type == "cpu")
    found = [Speed(entry.name, tuple(entry.milliseconds), errors[entry.name]) for entry in contestants]
    return found + [Speed(name, (), errors.get(name), reason) for name, reason in reasons.items()]


def timed_scan(
    case: Case, backend: str, arguments: Arguments, expected: list[Tensor | None]
) -> Callable[[], object] | str:
    """The call of one of our backends that is timed, or the reason why it is not.

    Raises:
        DeviceLostError: it broke the CUDA context.
    """
    return _checked(backend, _ours(case, backend), case, arguments, expected)[1]


def _checked(
    name: str, scan: Scan, case: Case, arguments: Arguments, expected: list[Tensor | None]
) -> tuple[float | None, Callable[[], object] | str]:
    """The largest relative error, and the call that is timed or the reason why it is not."""
    error: float | None = None
    call: Callable[[], object] | str
    try:
        error = _worst(_results(scan, arguments, case), expected, case)
        right = error <= TOLERANCE[case.dtype]
        call = _call(scan, arguments, case) if right else f"wrong: its relative error is {error:.2g}"
    except Exception as problem:  # it lacks a feature, or cannot be compiled, started or imported here
        call = first_line(problem)
    try:
        wait(next(x.device for x in expected if x is not None))
    except RuntimeError as problem:  # otherwise all later contestants get the blame
        raise DeviceLostError(f"{name}: {first_line(problem)}") from problem
    return error, call


@contextmanager
def _as_for_its_users() -> Iterator[None]:
    """Within this block, Triton compiles products as the user set it: a peer is not slower because of our kernels."""
    ours = {name: os.environ.get(name) for name in PRODUCTS}
    _set(PRODUCTS)
    try:
        yield
    finally:
        _set(ours)


def _set(variables: Mapping[str, str | None]) -> None:
    for name, value in variables.items():
        if value is None:
            os.environ.pop(name, None)
        else:
            os.environ[name] = value


def first_line(problem: Exception) -> str:
    """The first line of an error's message, or its type if it has none."""
    return (str(problem).strip() or type(problem).__name__).splitlines()[0]


def oracle(case: Case, arguments: Arguments, device: torch.device) -> list[Tensor | None]:
    """Outputs and gradients in float64."""
    return results(case, "torch" if device.type == "cuda" else "reference", _doubled(arguments))


def results(case: Case, backend: str, arguments: Arguments) -> list[Tensor | None]:
    """Outputs and gradients of one of our backends."""
    return _results(_ours(case, backend), arguments, case)


def _contestants(case: Case, device: torch.device) -> Iterator[tuple[str, Scan | str]]:
    """(name, function) of every backend and peer, or (name, reason why it cannot run)."""
    for name in backends.available(case.operation):
        if name not in SLOW:
            missing = backends.unavailable(case.operation, name, device)
            yield name, missing or _ours(case, name)
    yield from peers(case, device)


def _ours(case: Case, backend: str) -> Scan:
    operation = getattr(ssm_kernels, case.operation)

    def scan(arguments: Arguments) -> Outputs:
        y, state = operation(**arguments, **case.options, backend=backend)
        return y, state

    return scan


def _results(scan: Scan, arguments: Arguments, case: Case) -> list[Tensor | None]:
    """The outputs, then the gradients of all inputs."""
    leaves = {name: None if x is None else x.detach().requires_grad_(case.backward) for name, x in arguments.items()}
    with torch.set_grad_enabled(case.backward):
        y, state = scan(leaves)
    found: list[Tensor | None] = [y.detach(), None if state is None else state.detach()]
    if case.backward:
        _loss(y, state, case).backward()
        found += [None if x is None else x.grad for x in leaves.values()]
    return found


def _loss(y: Tensor, state: Tensor | None, case: Case) -> Tensor:
    """A real loss of all outputs that get a gradient."""
    outputs = _that_count(y, state, case)
    total = y.new_zeros((), dtype=torch.promote_types(y.real.dtype, torch.float32))
    for output in outputs:
        flat = torch.view_as_real(output) if output.is_complex() else output
        wave = torch.arange(flat.numel(), device=flat.device).mul(0.7).sin().view_as(flat)
        total = total + (flat.to(total.dtype) * wave).sum()
    return total


def _that_count(y: Tensor, state: Tensor | None, case: Case) -> list[Tensor]:
    """The outputs that get a gradient."""
    return [y, state] if case.state and state is not None else [y]


def _call(scan: Scan, arguments: Arguments, case: Case) -> Callable[[], object]:
    """The function that is timed: the scan, and the gradients of its inputs for given gradients of its outputs."""
    if not case.backward:
        detached = {name: None if x is None else x.detach() for name, x in arguments.items()}

        def forward() -> object:
            with torch.no_grad():
                return scan(detached)

        return forward
    leaves = {name: None if x is None else x.detach().requires_grad_() for name, x in arguments.items()}
    inputs = [x for x in leaves.values() if x is not None]
    y, state = scan(leaves)
    through = _that_count(y, state, case)
    gradients = [torch.randn_like(output) for output in through]

    def both() -> object:
        y, state = scan(leaves)
        return torch.autograd.grad(_that_count(y, state, case), inputs, gradients)

    return both


def _doubled(arguments: Arguments) -> Arguments:
    wide = {True: torch.complex128, False: torch.float64}
    return {name: None if x is None else x.to(wide[x.is_complex()]) for name, x in arguments.items()}


def _worst(found: list[Tensor | None], expected: list[Tensor | None], case: Case) -> float:
    """The largest relative error. A missing result counts as infinite, except a final state in a case without state."""
    pairs = [
        (a, b)
        for place, (a, b) in enumerate(zip(found, expected, strict=True))
        if b is not None and (place != 1 or case.state)
    ]
    return max(math.inf if a is None else numerics.error(a, b) for a, b in pairs)
