"""Native code: the C++ of the "cpp" backends, compiled with the system's compiler at first use.

    library = load("selective_scan/selective_scan.cpp")      a ctypes library of extern "C" functions
    why_not("selective_scan/selective_scan.cpp")             None, or one line that says what is missing

Sources are named from the folder ssm_kernels and include "simd.h" for vectors and "FlushDenormals". The compiler and
the instruction set may be chosen in the environment, by CXX and SSM_KERNELS_INSTRUCTIONS.
"""

from __future__ import annotations

import ctypes
import logging
import os
import threading
from functools import cache
from pathlib import Path

import torch  # noqa: F401 - before the libraries: they then share its OpenMP runtime instead of loading a second one

from ssm_kernels.native import cpu
from ssm_kernels.native.compiler import HEADERS, ROOT, NativeUnavailable, build, cache_folder, find_compiler

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
]

FLAGS = ["-std=c++17", "-O3", "-shared", "-fPIC", "-fno-math-errno", "-fno-trapping-math"]

log = logging.getLogger("ssm_kernels")
_lock = threading.Lock()

InstructionsError, instruction_sets, instructions = cpu.InstructionsError, cpu.instruction_sets, cpu.instructions


def load(source: str, chosen: str | None = None) -> ctypes.CDLL:
    """The library of one source file, compiled at its first use.

    Args:
        source: a C++ file, from the folder ssm_kernels, such as "selective_scan/selective_scan.cpp".
        chosen: one of `instruction_sets()`; by default what `instructions()` says.

    Raises:
        NativeUnavailable: no compiler, no safe cache folder, or code that does not compile or load.
        InstructionsError: the environment names an instruction set that does not exist, or that this processor lacks.
    """
    with _lock:
        library = _load(source, chosen or instructions(), os.environ.get("CXX", ""))
    if isinstance(library, NativeUnavailable):
        raise library
    return library


def why_not(source: str) -> str | None:
    """Why `load(source)` finds nothing, None if it does; compiles the source at the first call.

    Raises:
        InstructionsError: as `load` does; who asks for an instruction set is not to get another one silently.
    """
    try:
        load(source)
    except NativeUnavailable as error:
        return str(error)
    return None


@cache
def _load(source: str, instructions: str, cxx: str) -> ctypes.CDLL | NativeUnavailable:
    """What to return or raise: a failure is remembered too, for a compiler that fails is slow to ask again."""
    try:
        compiler = find_compiler()  # what $CXX names, if it names one
        flags = [*FLAGS, *cpu.flags(instructions)]
        return open_library(_build(ROOT / source, compiler, [*flags, *_openmp_flags(tuple(compiler))]))
    except NativeUnavailable as error:
        return error.with_traceback(None)


@cache
def _openmp_flags(compiler: tuple[str, ...]) -> list[str]:
    """-fopenmp where the compiler and the system support it; elsewhere one line says that all runs in one thread."""
    try:
        open_library(_build(HEADERS / "openmp.cpp", list(compiler), [*FLAGS, "-fopenmp"]))
    except NativeUnavailable as error:
        log.warning("C++ runs in one thread, without OpenMP: %s", error)
        return []
    return ["-fopenmp"]


def _build(source: Path, compiler: list[str], flags: list[str]) -> Path:
    name, features = cpu.description()
    return build(source, compiler, flags, target=" ".join([name, *sorted(features)]))


def open_library(library: Path) -> ctypes.CDLL:
    """A built library; NativeUnavailable where the system refuses it (a missing runtime, a folder mounted noexec)."""
    try:
        return ctypes.CDLL(str(library))
    except OSError as error:
        raise NativeUnavailable(f"cannot load {library}: {error}") from None
