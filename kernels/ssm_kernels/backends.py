"""Which backend serves a call: by name, or the fastest one that can ("auto"), chosen once and said once.

"auto" goes down ORDER and looks at the device, at what the machine has (a compiler, Triton, a GPU that is new enough),
and at what a backend says of the inputs: a module may have `unsuited(inputs)`, which names a dtype or a size that it
does not take. It does not look at how small an input is: the order is that of large ones.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from difflib import get_close_matches
from importlib import import_module
from types import ModuleType
from typing import Any, TypeVar

import torch

Function = TypeVar("Function", bound=Callable[..., Any])

BACKENDS = ("reference", "torch", "cpp", "triton", "cuda")
MODULES = {"reference": "reference", "torch": "pytorch", "cpp": "cpp", "triton": "triton", "cuda": "cuda"}
# What "auto" tries, by device, fastest first. What an operation does not have is passed over.
ORDER = {"cpu": ("cpp", "torch"), "cuda": ("cuda", "triton", "torch")}

log = logging.getLogger("ssm_kernels")
_lock = threading.Lock()
_blocks: dict[object, str] = {}  # the open blocks of `use_backend`, in the order they began, and what they ask for
_wanted = "auto"  # what "auto" means now: the last of these
_chosen: dict[tuple[str, ...], str] = {}  # operation, device type, what was passed over for its inputs -> the choice

_said: set[str] = set()  # why the fastest backend was passed over: warned of once, whatever number of operations


class BackendError(ValueError):
    """A backend that does not exist, or that cannot run here."""


def constant_when_compiled(function: Function) -> Function:
    """`torch.compiler.assume_constant_result`, which imports the compiler: a second, in most processes for nothing."""
    # The compiler looks for this attribute, which no type of a function has.
    function._dynamo_marked_constant = True  # type: ignore[attr-defined]
    return function


@contextmanager
def use_backend(name: str) -> Iterator[None]:
    """Within this block, every call that says "auto" takes the backend `name`, in all threads.

    Where blocks overlap, the one that began last counts.

    Raises:
        BackendError: no backend has this name.
    """
    problem = _unknown("use_backend", name)
    if problem is not None:
        raise BackendError(problem)
    block = object()
    _enter_or_leave(block, name)
    try:
        yield
    finally:
        _enter_or_leave(block, None)


def wanted() -> str:
    """What "auto" means now: "auto", or what the last block of `use_backend` asks for."""
    return _wanted


def choose(
    operation: str,
    available: tuple[str, ...],
    name: str,
    device: torch.device,
    passed_over: tuple[tuple[str, str], ...] = (),
) -> str:
    """The backend that serves a call of `operation` on `device`.

    Args:
        operation: the folder's name, "gated_scan" for instance.
        available: the backends that this operation has.
        name: what the caller asked for; "auto" takes the fastest that can run.
        device: where the inputs are.
        passed_over: earlier answers for the same inputs, which do not suit them, and why.

    Raises:
        BackendError: an unknown name, one that this operation does not have, one that cannot run here, or one that does
            not take these inputs, and why.
    """
    found, problem = _resolve(operation, available, _wanted if name == "auto" else name, device.type, passed_over)
    if problem is not None:
        raise BackendError(problem)
    return found


@constant_when_compiled  # torch.compile traces the backend that was chosen, not the choice
def _resolve(
    operation: str, available: tuple[str, ...], name: str, device_type: str, passed_over: tuple[tuple[str, str], ...]
) -> tuple[str, str | None]:
    """The backend, and what is wrong with it: raised outside, where torch.compile lets errors through."""
    if name == "auto":
        key = (operation, device_type, *(unsuited for unsuited, _ in passed_over))
        if key not in _chosen:
            found, problem = _fastest(operation, available, torch.device(device_type), dict(passed_over))
            if problem is not None:
                return name, problem
            _chosen[key] = found
        return _chosen[key], None
    if passed_over:
        return name, f"{operation}: backend '{name}' {passed_over[0][1]}"
    problem = _unknown(operation, name)
    if problem is None and name not in available:
        problem = f"{operation}: has no backend '{name}'; it has {', '.join(available)}"
    if problem is None:
        missing = unavailable(operation, name, torch.device(device_type))
        problem = missing and f"{operation}: backend '{name}' cannot run on {device_type}: {missing}"
    return name, problem


def chosen() -> dict[str, str]:
    """What "auto" chose so far, by operation and device: {"gated_scan on cpu": "cpp"}.

    Where the fastest did not suit some inputs, also what served these: {"selective_scan on cuda, not cuda": "triton"}.
    """
    return {
        f"{operation} on {device}{', not ' if unsuited else ''}{' or '.join(unsuited)}": name
        for (operation, device, *unsuited), name in sorted(_chosen.items())
    }


def available(operation: str) -> tuple[str, ...]:
    """The backends that an operation has, whether or not they can run here."""
    names: tuple[str, ...] = import_module(f"ssm_kernels.{operation}").operator.backends
    return names


def unavailable(operation: str, name: str, device: torch.device) -> str | None:
    """Why this backend cannot run on this device; None if it can."""
    try:
        reason: str | None = module(operation, name).unavailable(device)
    except ModuleNotFoundError as error:  # triton is not a requirement
        return f"the package {error.name} is not installed"
    return reason


def module(operation: str, name: str) -> ModuleType:
    """The module that holds one operation in one backend, imported at its first use."""
    return import_module(f"ssm_kernels.{operation}.{MODULES[name]}")


def _fastest(
    operation: str, available: tuple[str, ...], device: torch.device, unsuited: dict[str, str]
) -> tuple[str, str | None]:
    passed_over: list[str] = []
    for name in ORDER.get(device.type, ("torch",)):
        if name not in available:
            continue
        missing = unsuited.get(name) or unavailable(operation, name, device)
        if missing is None:
            reason = "; ".join(passed_over)
            say = log.warning if reason and reason not in _said else log.info  # what all lack is said of the first
            _said.add(reason)
            say("%s on %s: backend %s%s", operation, device.type, name, f" ({reason})" if reason else "")
            return name, None
        passed_over.append(f"{name}: {missing}")
    return "auto", f"{operation}: no backend can run on {device.type}: {'; '.join(passed_over)}"


def _unknown(operation: str, name: str) -> str | None:
    names = ("auto", *BACKENDS)
    if name in names:
        return None
    near = get_close_matches(name, names, 1)
    hint = f"; did you mean '{near[0]}'?" if near else ""
    return f"{operation}: unknown backend '{name}', expected one of {', '.join(names)}{hint}"


def _enter_or_leave(block: object, name: str | None) -> None:
    global _wanted
    with _lock:
        if name is None:
            del _blocks[block]
        else:
            _blocks[block] = name
        _wanted = next(reversed(_blocks.values()), "auto")
