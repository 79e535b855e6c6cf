"""Stage rules: launch shapes around the rules that choose them, and which change would have been best.

A task is one case, forward and backward. Each trial changes one thing: the warps or stages of one kernel, all tiles, or
the number of programs for which a sequence is cut. A trial with wrong results is not timed. Each trial compiles
kernels, so a task may end with fewer trials: all tasks have the same share of the stage's time.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager
from functools import cache, partial
from statistics import median
from typing import Any
from unittest import mock

import torch

from ssm_kernels import backends
from ssm_kernels.benchmarks.cases import Case, rehearsed
from ssm_kernels.benchmarks.on_gpu.stages import STAGES
from ssm_kernels.benchmarks.on_gpu.task import Setting, TaskError, cannot_run
from ssm_kernels.benchmarks.race import Contestant, race
from ssm_kernels.benchmarks.scans import DeviceLostError, oracle, timed_scan
from ssm_kernels.native import cuda, triton_launch
from ssm_kernels.native.triton_launch import PROGRAMS, Launch, launching

REPEATS, SECONDS = 10, 0.5  # at most, for each trial
SHARE = 0.8  # of the stage's time, for new trials; the rest is for starts of workers and for last trials
SHAPES = (
    ("gated_scan", "Mamba-2", (8, 2048, 64, 128, 64)),
    ("selective_scan", "Mamba", (8, 2048, 4096, 16)),
    ("delta_scan", "Gated DeltaNet", (4, 2048, 16, 128, 128)),
    ("gated_scan", "GLA", (4, 2048, 16, 128, 128)),
    ("delta_scan", "KDA", (4, 2048, 16, 128, 128)),
    ("delta_scan", "RWKV-7", (8, 2048, 32, 64, 64)),
    ("diagonal_scan", "RG-LRU", (8, 2048, 2560)),
    ("gated_scan", "GLA", (1, 16384, 16, 128, 128)),
)
PROCESSORS = (0.5, 2.0)  # factors of the multiprocessors for which the CUDA kernels cut a sequence


def names(setting: Setting) -> list[str]:
    return list(_cases(setting))


def run(setting: Setting, name: str) -> dict[str, Any]:
    """The time of each trial over that of the rule, for the trials that start in time.

    Raises:
        TaskError: the backend cannot run, the rule gives no right results, or a trial broke the CUDA context.
        TaskSkippedError: the backend cannot be rehearsed here.
    """
    end = time.monotonic() + SHARE * STAGES["rules"].seconds / len(_cases(setting))  # no trial starts after it
    case, backend = _cases(setting)[name]
    device = torch.device(setting.device)
    missing = backends.unavailable(case.operation, backend, device)
    if missing is not None:
        raise cannot_run(setting, missing)
    arguments = case.arguments(device)
    expected = oracle(case, arguments, device)
    kernels: dict[str, None] = {}  # names, in order
    with launching(partial(_noted, kernels)):
        rule = timed_scan(case, backend, arguments, expected)
    if isinstance(rule, str):
        raise TaskError(f"the rule: {rule}")
    found: dict[str, float | str] = {}
    trials = list(_changes(backend, kernels, setting))
    for label, change in trials:
        if time.monotonic() >= end:
            break
        try:
            with change():
                call = timed_scan(case, backend, arguments, expected)
        except DeviceLostError as error:
            raise TaskError(f"{label}: {error}") from error
        if isinstance(call, str):
            found[label] = call
            continue
        pair = [Contestant("rule", rule), Contestant("trial", _inside(change, call))]
        race(pair, 1 if setting.rehearse else REPEATS, SECONDS, device)
        found[label] = median(pair[1].milliseconds) / median(pair[0].milliseconds)
    ratios = {label: ratio for label, ratio in found.items() if isinstance(ratio, float)}
    best = min(ratios, key=lambda label: ratios[label], default=None)
    says = "no trial ran" if best is None else f"best: {best}, {ratios[best]:.2f} times the rule's time"
    says += f"; only {len(found)} of {len(trials)} trials in time" if len(found) < len(trials) else ""
    return {"says": says, "trials": found, "best": best if best is not None and ratios[best] < 1 else "the rule"}


Change = Callable[[], AbstractContextManager[None]]


def _changes(backend: str, kernels: Iterable[str], setting: Setting) -> Iterator[tuple[str, Change]]:
    """(label, context in which a rule is another)."""
    if backend == "cuda":
        usual = cuda.multiprocessors(torch.device(setting.device))
        for factor in PROCESSORS:
            number = max(1, int(usual * factor))
            other = mock.Mock(return_value=number)
            yield f"{factor:g} times the multiprocessors", partial(_replaced, cuda, "multiprocessors", other)
        return
    trials: dict[str, Change] = {}
    for factor in (0.5, 2.0):
        trials[f"tiles x {factor:g}"] = partial(_replaced, triton_launch, "TILES", factor)
    for factor in (0.5, 2.0, 4.0):
        trials[f"programs x {factor:g}"] = partial(_replaced, triton_launch, "PROGRAMS", int(PROGRAMS * factor))
    trials |= {f"stages {change:+d}": partial(launching, partial(_with_stages, change)) for change in (-1, 1)}
    for kernel in kernels:
        for factor in (0.5, 2.0):
            trials[f"{kernel}: warps x {factor:g}"] = partial(launching, partial(_with_warps, kernel, factor))
    yield from list(trials.items())[: 3 if setting.rehearse else None]


@contextmanager
def _replaced(module: Any, name: str, value: Any) -> Iterator[None]:
    """As `mock.patch.object`, which is too slow inside a timed call."""
    usual = getattr(module, name)
    setattr(module, name, value)
    try:
        yield
    finally:
        setattr(module, name, usual)


def _noted(names: dict[str, None], launch: Launch) -> None:
    names[launch.kernel.__name__] = None
    launch.start()


def _with_stages(change: int, launch: Launch) -> None:
    launch._replace(num_stages=max(1, launch.num_stages + change)).start()


def _with_warps(kernel: str, factor: float, launch: Launch) -> None:
    if launch.kernel.__name__ == kernel:
        launch = launch._replace(num_warps=min(16, max(1, int(launch.num_warps * factor))))
    launch.start()


def _inside(change: Change, call: Callable[[], object]) -> Callable[[], object]:
    def changed() -> object:
        with change():
            return call()

    return changed


@cache
def _cases(setting: Setting) -> dict[str, tuple[Case, str]]:
    found: dict[str, tuple[Case, str]] = {}
    for operation, system, sizes in SHAPES:
        able = ("cuda", "triton") if operation == "selective_scan" else ("triton",)
        case = Case(operation, system, sizes, dtype=torch.bfloat16)
        case = rehearsed(case) if setting.rehearse else case
        found |= {f"{case.name}, {case.shape}, {backend}": (case, backend) for backend in able}
    return found
