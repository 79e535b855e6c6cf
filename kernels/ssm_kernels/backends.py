"""Which backend serves a call: by name, or the fastest one that can ("auto"), chosen once and said once."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from difflib import get_close_matches
from importlib import import_module
from types import ModuleType

import torch

BACKENDS = ("reference", "torch", "cpp", "triton", "cuda")
MODULES = {"reference": "reference", "torch": "pytorch", "cpp": "cpp", "triton": "triton", "cuda": "cuda"}
# What "auto" tries, by device, fastest first. What an operation does not have is passed over.
ORDER = {"cpu": ("cpp", "torch"), "cuda": ("cuda", "triton", "torch")}

log = logging.getLogger("ssm_kernels")
_wanted = "auto"  # what "auto" means now: see `use_backend`
_chosen: dict[tuple[str, str], str] = {}  # (operation, device type) -> what "auto" chose


class BackendError(ValueError):
    """A backend that does not exist, or that cannot run here."""


@contextmanager
def use_backend(name: str) -> Iterator[None]:
    """Within this block, every call that says "auto" takes the backend `name`, in all threads.

    Raises:
        BackendError: no backend has this name.
    """
    global _wanted
    _check_name("use_backend", name, ("auto", *BACKENDS))
    before, _wanted = _wanted, name
    try:
        yield
    finally:
        _wanted = before


def choose(operation: str, available: tuple[str, ...], name: str, device: torch.device) -> str:
    """The backend that serves a call of `operation` on `device`.

    Args:
        operation: the folder's name, "gated_scan" for instance.
        available: the backends that this operation has.
        name: what the caller asked for; "auto" takes the fastest that can run.
        device: where the inputs are.

    Raises:
        BackendError: an unknown name, one that this operation does not have, or one that cannot run here, and why.
    """
    return _resolve(operation, available, _wanted if name == "auto" else name, device.type)


@torch.compiler.assume_constant_result  # torch.compile traces the backend that was chosen, not the choice
def _resolve(operation: str, available: tuple[str, ...], name: str, device_type: str) -> str:
    device = torch.device(device_type)
    if name == "auto":
        key = (operation, device_type)
        if key not in _chosen:
            _chosen[key] = _fastest(operation, available, device)
        return _chosen[key]
    _check_name(operation, name, ("auto", *BACKENDS))
    if name not in available:
        raise BackendError(f"{operation}: has no backend '{name}'; it has {', '.join(available)}")
    missing = unavailable(operation, name, device)
    if missing:
        raise BackendError(f"{operation}: backend '{name}' cannot run on {device_type}: {missing}")
    return name


def chosen() -> dict[str, str]:
    """What "auto" chose so far, by operation and device: {"gated_scan on cpu": "cpp"}."""
    return {f"{operation} on {device}": name for (operation, device), name in sorted(_chosen.items())}


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


def _fastest(operation: str, available: tuple[str, ...], device: torch.device) -> str:
    passed_over: list[str] = []
    for name in ORDER.get(device.type, ("torch",)):
        if name not in available:
            continue
        missing = unavailable(operation, name, device)
        if missing is None:
            instead = f" ({'; '.join(passed_over)})" if passed_over else ""
            say = log.warning if passed_over else log.info
            say("%s on %s: backend %s%s", operation, device.type, name, instead)
            return name
        passed_over.append(f"{name}: {missing}")
    raise BackendError(f"{operation}: no backend can run on {device.type}: {'; '.join(passed_over)}")


def _check_name(operation: str, name: str, names: tuple[str, ...]) -> None:
    if name not in names:
        near = get_close_matches(name, names, 1)
        hint = f"; did you mean '{near[0]}'?" if near else ""
        raise BackendError(f"{operation}: unknown backend '{name}', expected one of {', '.join(names)}{hint}")
