"""Stage compile: compile the kernels of the stage speed in several processes, and fill the caches on the disk.

A task is one case in one backend, called once. The stage speed has one process, because it times. There, kernels would
be compiled one after another, which takes half of its time.
"""

from __future__ import annotations

from functools import cache
from typing import Any

import torch

from ssm_kernels import backends
from ssm_kernels.benchmarks.cases import Case
from ssm_kernels.benchmarks.on_gpu.speed import OURS, cases
from ssm_kernels.benchmarks.on_gpu.task import Setting, cannot_run
from ssm_kernels.benchmarks.scans import results


def names(setting: Setting) -> list[str]:
    return list(_calls(setting))


def run(setting: Setting, name: str) -> dict[str, Any]:
    """Nothing: the kernels are compiled, or an error says why not.

    Raises:
        TaskError: the backend cannot run.
        TaskSkippedError: the backend cannot be rehearsed here.
    """
    case, backend = _calls(setting)[name]
    device = torch.device(setting.device)
    missing = backends.unavailable(case.operation, backend, device)
    if missing is not None:
        raise cannot_run(setting, missing)
    results(case, backend, case.arguments(device))
    return {}


@cache
def _calls(setting: Setting) -> dict[str, tuple[Case, str]]:
    return {
        f"{name}, {backend}": (case, backend)
        for name, case in cases(setting).items()
        for backend in OURS
        if backend in backends.available(case.operation)
    }
