"""Choose the backend of a call: the one that the caller names, or with "auto" the fastest one that can run.

"auto" tries the backends in the order of ORDER. A backend can run if the machine has what it needs (a compiler, Triton,
a recent GPU), and if it supports the inputs. If it does not support a dtype or a size, `unsuited(inputs)` of its module
returns the reason. ORDER is the order of speed for large inputs; the size of an input does not change it. A choice is
made once and logged once.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from difflib import get_close_matches
from functools import cache
from importlib import import_module
from types import ModuleType
from typing import Any, TypeVar

import torch

Function = TypeVar("Function", bound=Callable[..., Any])

MODULES = {"reference": "reference", "torch": "pytorch", "cpp": "cpp", "triton": "triton", "cuda": "cuda"}
BACKENDS = tuple(MODULES)
# Backends that "auto" tries, by device, fastest first. Backends that an operation lacks are skipped.
ORDER = {"cpu": ("cpp", "torch"), "cuda": ("cuda", "triton", "torch")}

log = logging.getLogger("ssm_kernels")
_lock = threading.Lock()
_blocks: dict[object, str] = {}  # open blocks of `use_backend`, in the order in which they began -> backend
_wanted = "auto"  # current meaning of "auto": the backend of the last open block
_chosen: dict[tuple[Any, ...], str] = {}  # (operation, device, *backends skipped for its inputs) -> backend

_warned: set[str] = set()  # reasons for skipping the fastest backend that were logged as a warning


class BackendError(ValueError):
    """The backend does not exist, or cannot run here."""


def constant_when_compiled(function: Function) -> Function:
    """Like `torch.compiler.assume_constant_result`, without importing the compiler, which takes a second."""
    # The compiler reads this attribute. Type checkers have no declaration of it.
    function._dynamo_marked_constant = True  # type: ignore[attr-defined]
    return function


@contextmanager
def use_backend(name: str) -> Iterator[None]:
    """Make "auto" mean the backend `name` inside this block, in all threads.

    If blocks overlap, the block that began last decides.

    Raises:
        BackendError: there is no such backend.
    """
    problem = _unknown("use_backend", name)
    if problem is not None:
        raise BackendError(problem)
    block = object()
    _set_block(block, name)
    try:
        yield
    finally:
        _set_block(block, None)


def choose(
    operation: str,
    available: tuple[str, ...],
    name: str,
    device: torch.device,
    skipped: tuple[tuple[str, str], ...] = (),
) -> str:
    """The backend for a call of `operation` on `device`.

    Args:
        operation: name of the operation, such as "gated_scan".
        available: backends that implement the operation.
        name: the backend that the caller named; "auto" takes the fastest that can run.
        device: device of the inputs.
        skipped: (backend, reason) for each backend that does not take these inputs.

    Raises:
        BackendError: the backend is unknown, does not implement the operation, cannot run here, or does not take these
            inputs. The message says why.
    """
    backend, problem = _resolve(operation, available, _wanted if name == "auto" else name, device, skipped)
    if problem is not None:
        raise BackendError(problem)
    return backend


@constant_when_compiled  # torch.compile traces the backend that was chosen, not the choice
def _resolve(
    operation: str, available: tuple[str, ...], name: str, device: torch.device, skipped: tuple[tuple[str, str], ...]
) -> tuple[str, str | None]:
    """The backend, and the problem with it. `choose` raises it, because torch.compile hides errors raised here."""
    if name == "auto":
        key = (operation, device, *(unsuited for unsuited, _ in skipped))
        if key not in _chosen:
            backend, problem = _fastest(operation, available, device, dict(skipped))
            if problem is not None:
                return name, problem
            _chosen[key] = backend
        return _chosen[key], None
    if skipped:
        return name, f"{operation}: backend '{name}' {skipped[0][1]}"
    problem = _unknown(operation, name)
    if problem is None and name not in available:
        problem = f"{operation}: has no backend '{name}'; it has {', '.join(available)}"
    if problem is None:
        missing = unavailable(operation, name, device)
        problem = missing and f"{operation}: backend '{name}' cannot run on {device.type}: {missing}"
    return name, problem


def chosen() -> dict[str, str]:
    """Backends that "auto" chose so far, by operation and device: {"gated_scan on cpu": "cpp"}.

    If the fastest backend did not support some inputs, the choice for these inputs is a separate entry:
    {"selective_scan on cuda, not cuda": "triton"}. Of GPUs that differ, the last one counts.
    """
    return {
        f"{operation} on {device.type}{', not ' if unsuited else ''}{' or '.join(unsuited)}": name
        for (operation, device, *unsuited), name in sorted(_chosen.items(), key=str)
    }


def available(operation: str) -> tuple[str, ...]:
    """Backends that implement an operation, including those that cannot run here."""
    names: tuple[str, ...] = import_module(f"ssm_kernels.{operation}").operator.backends
    return names


def unavailable(operation: str, name: str, device: torch.device) -> str | None:
    """The reason why this backend cannot run on this device; None if it can."""
    try:
        check = getattr(module(operation, name), "unavailable", None)
        reason: str | None = check(device) if check else None
    except ModuleNotFoundError as error:  # triton is optional
        return f"the package {error.name} is not installed"
    return reason


@cache
def module(operation: str, name: str) -> ModuleType:
    """The module of one operation in one backend, imported at its first use."""
    return import_module(f"ssm_kernels.{operation}.{MODULES[name]}")


def _fastest(
    operation: str, available: tuple[str, ...], device: torch.device, unsuited: dict[str, str]
) -> tuple[str, str | None]:
    skipped: list[str] = []
    for name in ORDER.get(device.type, ("torch",)):
        if name not in available:
            continue
        missing = unsuited.get(name) or unavailable(operation, name, device)
        if missing is None:
            reason = "; ".join(skipped)  # often the same for all operations: one warning is enough
            write = log.warning if reason and reason not in _warned else log.info
            _warned.add(reason)
            write("%s on %s: backend %s%s", operation, device.type, name, f" ({reason})" if reason else "")
            return name, None
        skipped.append(f"{name}: {missing}")
    return "auto", f"{operation}: no backend can run on {device.type}: {'; '.join(skipped)}"


def _unknown(operation: str, name: str) -> str | None:
    names = ("auto", *BACKENDS)
    if name in names:
        return None
    near = get_close_matches(name, names, 1)
    hint = f"; did you mean '{near[0]}'?" if near else ""
    return f"{operation}: unknown backend '{name}', expected one of {', '.join(names)}{hint}"


def _set_block(block: object, name: str | None) -> None:
    global _wanted
    with _lock:
        if name is None:
            del _blocks[block]
        else:
            _blocks[block] = name
        _wanted = next(reversed(_blocks.values()), "auto")
