"""Stage speed: every implementation of a scan that is here, at each size, against the limits of the chip.

A task is one case. Nothing is timed before its outputs and gradients agree with the oracle in float64.
"""

from __future__ import annotations

from functools import cache
from typing import Any

import torch

from ssm_kernels.backends import unavailable
from ssm_kernels.benchmarks.cases import Case, gpu_cases, rehearsed
from ssm_kernels.benchmarks.limits import Limits, limit_ms, measure_gpu
from ssm_kernels.benchmarks.on_gpu.task import Setting, TaskError
from ssm_kernels.benchmarks.scans import DeviceLostError, scan_speed

REPEATS, SECONDS = 20, 1.0  # at most, for each implementation
OURS = ("triton", "cuda")
TINY = {  # sizes of a measurement of limits in a rehearsal
    "multiply_adds": {"programs": 1, "rounds": 2},
    "exponentials": {"programs": 1, "rounds": 2},
    "matrix_products": {"side": 16},
    "copy": {"touched": 2**10},
}


def names(setting: Setting) -> list[str]:
    return list(cases(setting))


def run(setting: Setting, name: str) -> dict[str, Any]:
    """Times of all implementations, and the limit.

    Raises:
        TaskError: one of our kernels is wrong or could not run, or an implementation broke the CUDA context.
    """
    case, limits = cases(setting)[name], _limits(setting)
    repeats = 1 if setting.rehearse else REPEATS
    try:
        speeds = scan_speed(case, torch.device(setting.device), repeats, SECONDS)
    except DeviceLostError as error:
        raise TaskError(str(error)) from error
    limit = limit_ms(case, limits)
    found = [
        {
            "name": speed.contestant,
            "ms": speed.median if speed.milliseconds else None,
            "share": limit / speed.median if speed.milliseconds else None,
            "error": speed.error,
            "reason": speed.reason,
        }
        for speed in speeds
    ]
    wrong = [speed for speed in speeds if speed.contestant in OURS and not speed.milliseconds]
    if setting.rehearse:  # which needs no nvcc
        wrong = [x for x in wrong if unavailable(case.operation, x.contestant, torch.device(setting.device)) is None]
    timed = sorted((speed for speed in speeds if speed.milliseconds), key=lambda speed: speed.median)
    says = ", ".join(f"{speed.contestant} {speed.median:.3g} ms ({limit / speed.median:.0%})" for speed in timed)
    result = {"says": says, "limit_ms": limit, "limits": limits.content(), "case": _about(case), "found": found}
    if wrong:
        raise TaskError("; ".join(f"{speed.contestant}: {speed.reason}" for speed in wrong), result)
    return result


def _about(case: Case) -> dict[str, Any]:
    return {"operation": case.operation, "system": case.system, "sizes": case.sizes, "direction": case.direction}


@cache
def cases(setting: Setting) -> dict[str, Case]:
    """The cases by name. A rehearsal has one of every kind, at tiny sizes and in float32."""
    chosen = gpu_cases()
    if setting.rehearse:
        kinds = {(case.operation, case.system): case for case in reversed(chosen) if case.backward}
        chosen = [rehearsed(case) for case in kinds.values()]
    return {f"{case.name}, {case.shape}, {case.direction}": case for case in chosen}


@cache
def _limits(setting: Setting) -> Limits:
    return measure_gpu(torch.device(setting.device), **(TINY if setting.rehearse else {}))
