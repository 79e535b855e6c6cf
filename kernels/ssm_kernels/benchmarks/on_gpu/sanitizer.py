"""Stage sanitizer: small calls of every kernel under compute-sanitizer, for memory errors, races and barriers."""

from __future__ import annotations

import os
import shutil
from typing import Any

from ssm_kernels import backends
from ssm_kernels.benchmarks.on_gpu import kernels
from ssm_kernels.benchmarks.on_gpu.task import Setting, TaskError, TaskSkippedError
from ssm_kernels.benchmarks.on_gpu.worker import SKIPPED, called
from ssm_kernels.benchmarks.on_gpu.workers import command, environment
from ssm_kernels.testing.cases import EVERY

# Lanes of a reduction in Triton write one word with values that can differ in the last bit, which racecheck reports.
TOOLS = {"cuda": ("memcheck", "racecheck", "synccheck"), "triton": ("memcheck",)}
FOUND = 9  # exit code for errors


def names(setting: Setting) -> list[str]:
    return [
        f"{tool}, {operation}, {backend}"
        for backend, tools in TOOLS.items()
        for tool in tools[: 1 if setting.rehearse else None]  # without the tools, their calls are the same
        for operation in EVERY
        if backend in backends.available(operation)
    ]


def run(setting: Setting, name: str) -> dict[str, Any]:
    """The last line of the tool. A rehearsal runs the same command without the tool.

    Raises:
        TaskError: the tool found an error, or the call failed.
        TaskSkippedError: the tool is not installed, or does not know the device.
    """
    tool, operation, backend = name.split(", ")
    program = shutil.which("compute-sanitizer") or shutil.which("compute-sanitizer", path="/usr/local/cuda/bin")
    if program is None and not setting.rehearse:
        raise TaskSkippedError("compute-sanitizer is not installed; it is part of the CUDA toolkit")
    options = ["--tool", tool, "--error-exitcode", str(FOUND)]
    if tool == "memcheck":  # PyTorch asks the CUDA API for what a device may refuse, and handles the error
        options += ["--report-api-errors", "no"]
    before = [] if setting.rehearse else [str(program), *options]
    task = command(
        kernels.__name__.rsplit(".", 1)[1], setting, "--task", f"{kernels.SANITIZED}, {operation}, {backend}"
    )
    # Every tensor is its own allocation, so that an access beyond its end is seen.
    more = environment(setting) | {"PYTORCH_NO_CUDA_MEMORY_CACHING": "1"}
    done = called([*before, *task], variables=os.environ | more)
    said = [line for line in done.stdout.splitlines() if line.strip()]
    if done.returncode == SKIPPED:
        own = [line for line in said if not line.startswith("===")]  # without the lines of the tool
        raise TaskSkippedError(own[-1].strip() if own else "skipped")
    if any("Device not supported" in line for line in said):
        raise TaskSkippedError(f"compute-sanitizer does not know this device; a newer one may ({program})")
    if done.returncode:
        errors = [line for line in said if "Invalid" in line or "hazard" in line or "rror" in line]
        raise TaskError((errors or said or [f"exit code {done.returncode}"])[0].strip())
    return {"says": said[-1].strip() if said else ""}
