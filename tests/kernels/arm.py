"""Run the C++ on an emulated 64-bit ARM: it is cross-compiled, and each call of it runs in qemu.

Debian's packages: g++-aarch64-linux-gnu and qemu-user, and clang for the second compiler. The Python part of the
backend "cpp" runs natively.
"""

from __future__ import annotations

import ctypes
import shutil
import struct
import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
import torch
from ssm_kernels.native import FLAGS, build, matrix_scan
from ssm_kernels.native import call as native_call
from ssm_kernels.native.compiler import ROOT
from torch import Tensor

GCC, EMULATOR, LIBRARIES = "aarch64-linux-gnu-g++", "qemu-aarch64", "/usr/aarch64-linux-gnu"
CALLS = Path(__file__).with_name("calls.cpp")
# The compiler's command, and its OpenMP flags. clang has no OpenMP runtime for ARM here, as on a Mac.
COMPILERS = {"gcc": ([GCC], ["-fopenmp"]), "clang": (["clang++", "--target=aarch64-linux-gnu"], [])}


def missing(compiler: str) -> str | None:
    """The program that has to be installed for this compiler, or None."""
    tools = (GCC, EMULATOR, COMPILERS[compiler][0][0])
    return next((f"{tool} is not installed" for tool in tools if shutil.which(tool) is None), None)


class Library:
    """Replaces the result of `native.load` with a library for ARM. Its functions take tensors instead of addresses."""

    def __init__(self, compiler: str, source: Path) -> None:
        command, more = COMPILERS[compiler]
        self._path = build(source, command, [*FLAGS, *more])
        self._calls = build(CALLS, [GCC], ["-std=c++17", "-O1"])

    def __getattr__(self, name: str) -> Callable[..., int]:
        def function(*arguments: Any) -> int:
            return self._call(name, arguments)

        function.argtypes = None  # type: ignore[attr-defined]
        return function

    def _call(self, name: str, arguments: tuple[Any, ...]) -> int:
        memories = [x for x in map(_memory, arguments) if x is not None]
        with TemporaryDirectory() as folder:
            given, left = Path(folder, "in"), Path(folder, "out")
            given.write_bytes(b"".join(map(_encoded, arguments)))
            command = [EMULATOR, "-L", LIBRARIES, self._calls, self._path, name, given, left]
            done = subprocess.run(command, capture_output=True, text=True, timeout=300)
            assert done.returncode == 0, done.stderr
            result = left.read_bytes()
        at = 8
        for memory in memories:
            memory[:] = result[at : at + len(memory)]
            at += len(memory)
        assert at == len(result)
        return int(struct.unpack("<q", result[:8])[0])


@contextmanager
def on_arm(compiler: str) -> Iterator[None]:
    """Within this block, the C++ of all operations runs on the emulated ARM."""
    libraries: dict[str, Library] = {}

    def load(source: str) -> Library:
        if source not in libraries:
            libraries[source] = Library(compiler, ROOT / source)
        return libraries[source]

    with pytest.MonkeyPatch.context() as patch:
        for module in (native_call, matrix_scan):
            patch.setattr(module, "load", load)
            patch.setattr(module, "addresses", list)
        yield


def _memory(value: Any) -> memoryview | None:
    """The bytes from the start of a tensor to the end of its storage, or all bytes of a C array."""
    if isinstance(value, ctypes.Array):
        return memoryview(value).cast("B")
    if not isinstance(value, Tensor):
        return None
    storage = value.untyped_storage()
    every = torch.empty(0, dtype=torch.uint8).set_(storage)  # type: ignore[call-overload]
    return memoryview(every[value.storage_offset() * value.element_size() :].numpy())


def _encoded(value: Any) -> bytes:
    """The argument in the format of calls.cpp."""
    memory = _memory(value)
    if memory is not None:
        return b"m" + struct.pack("<q", len(memory)) + memory.tobytes()
    if value is None:
        return b"n" + bytes(8)
    return struct.pack("<cd", b"d", value) if isinstance(value, float) else struct.pack("<cq", b"i", value)
