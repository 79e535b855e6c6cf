"""C++ code of the "cpp" backends, compiled with the system's compiler at its first use.

    library = load("selective_scan/selective_scan.cpp")      a ctypes library of extern "C" functions
    why_not("selective_scan/selective_scan.cpp")             None, or one line that says what is missing

Paths of sources are relative to the folder ssm_kernels. Sources include "simd.h" for vectors. `threads::for_each` of
"threads.h" runs their work in parallel, with denormal numbers flushed to zero. The environment variables CXX and
SSM_KERNELS_INSTRUCTIONS choose the compiler and the instruction set.
"""

from __future__ import annotations

import ctypes
import logging
import os
import threading
from functools import cache
from pathlib import Path

import torch  # imported first, so that our libraries share its OpenMP runtime

from ssm_kernels.native import cpu
from ssm_kernels.native.compiler import (
    HEADERS,
    ROOT,
    NativeUnavailable,
    build,
    cache_folder,
    find_compiler,
    open_library,
)

__all__ = [
    "InstructionsError",
    "NativeUnavailable",
    "build",
    "cache_folder",
    "find_compiler",
    "instruction_sets",
    "instructions",
    "load",
    "open_library",
    "why_not",
    "why_not_on",
]

FLAGS = ["-std=c++17", "-O3", "-shared", "-fPIC", "-fno-math-errno", "-fno-trapping-math"]

log = logging.getLogger("ssm_kernels")
_lock = threading.Lock()

InstructionsError, instruction_sets, instructions = cpu.InstructionsError, cpu.instruction_sets, cpu.instructions


def load(source: str, chosen: str | None = None) -> ctypes.CDLL:
    """The library of one source file, compiled at its first use.

    Args:
        source: path of a C++ file in the folder ssm_kernels, such as "selective_scan/selective_scan.cpp".
        chosen: one of `instruction_sets()`; the default is `instructions()`.

    Raises:
        NativeUnavailable: there is no compiler or no safe cache folder, or the code does not compile or load.
        InstructionsError: the environment names an instruction set that is unknown, or that this processor lacks.
    """
    with _lock:
        library = _load(source, chosen or instructions(), os.environ.get("CXX", ""))
    if isinstance(library, NativeUnavailable):
        raise library
    return library


def why_not(source: str) -> str | None:
    """The reason why `load(source)` fails; None if it works. Compiles the source at the first call.

    Raises:
        InstructionsError: as `load`. A wrong instruction set is an error and never replaced by another one.
    """
    try:
        load(source)
    except NativeUnavailable as error:
        return str(error)
    return None


def why_not_on(source: str, device: torch.device) -> str | None:
    """The reason why a "cpp" backend with this source cannot run on a device; None if it can."""
    return why_not(source) if device.type == "cpu" else f"it runs on the CPU, not on {device.type}"


@cache
def _load(source: str, instructions: str, cxx: str) -> ctypes.CDLL | NativeUnavailable:
    """The library, or the error to raise. Errors are cached too, because a failing compiler is slow."""
    try:
        compiler = find_compiler()  # reads $CXX, which is therefore part of the cache key
        flags = [*FLAGS, *cpu.flags(instructions)]
        return open_library(_build(ROOT / source, compiler, [*flags, *_openmp_flags(tuple(compiler))]))
    except NativeUnavailable as error:
        return error.with_traceback(None)


@cache
def _openmp_flags(compiler: tuple[str, ...]) -> list[str]:
    """-fopenmp if the compiler and the system support it. If not, a warning says that code runs in one thread."""
    try:
        open_library(_build(HEADERS / "openmp.cpp", list(compiler), [*FLAGS, "-fopenmp"]))
    except NativeUnavailable as error:
        log.warning("C++ runs in one thread, without OpenMP: %s", error)
        return []
    return ["-fopenmp"]


def _build(source: Path, compiler: list[str], flags: list[str]) -> Path:
    name, features = cpu.description()
    return build(source, compiler, flags, target=" ".join([name, *sorted(features)]))
