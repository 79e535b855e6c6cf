"""CUDA C++, compiled by nvcc at its first use, into the same cache as the C++ of the "cpp" backends.

    load("selective_scan/selective_scan.cu", ("ELEMENT=float", "STATES=16"), device)     a ctypes library
    why_not(device)                                                                      None, or what is missing

A library is compiled for one GPU architecture and one set of definitions. For a CPU device, the C++ compiler compiles
the same source with `cuda_on_cpu.h` instead of CUDA. Each CUDA thread is then a fiber. This is slow; tests use it.
"""

from __future__ import annotations

import ctypes
import os
import shutil
import threading
from contextlib import nullcontext
from functools import cache

import torch
from torch import Tensor

from ssm_kernels.backends import constant_when_compiled
from ssm_kernels.native.compiler import ROOT, NativeUnavailable, build, find_compiler, open_library

NVCC_FLAGS = ("-std=c++17", "-O3")
CPU_FLAGS = ("-x", "c++", "-std=c++17", "-O1", "-shared", "-fPIC", "-U_FORTIFY_SOURCE")  # it forbids fibers
ELEMENTS = {torch.float32: "float", torch.float16: "__half", torch.bfloat16: "__nv_bfloat16"}  # values of -DELEMENT
OLDEST = (8, 0)  # compute capability; older GPUs have too little shared memory

_lock = threading.Lock()


def load(source: str, defines: tuple[str, ...], device: torch.device) -> ctypes.CDLL:
    """The library of one CUDA source file for one device, compiled at its first use.

    Args:
        source: path of a .cu file in the folder ssm_kernels.
        defines: preprocessor definitions, such as "STATES=16".
        device: a CUDA device, or the CPU for tests.

    Raises:
        NativeUnavailable: there is no compiler or no safe cache folder, or the code does not compile or load.
    """
    with _lock:
        library = _load(source, defines, "cpu" if device.type == "cpu" else architecture(device))
    if isinstance(library, NativeUnavailable):
        raise library
    return library


def why_not(device: torch.device) -> str | None:
    """One line that says why CUDA sources cannot be compiled for or run on this device; None if they can.

    Compiles and runs an empty kernel at the first call.
    """
    if device.type != "cuda":
        return f"it needs a CUDA device, not {device.type}"
    if not torch.cuda.is_available():
        return "no CUDA device (torch.cuda.is_available() is false)"
    if torch.cuda.get_device_capability(device) < OLDEST:
        return f"it needs a GPU of sm_{OLDEST[0]}{OLDEST[1]} or newer, not {architecture(device)}"
    return _probe(_index(device))


def find_nvcc() -> str:
    """Path of nvcc, searched in $CUDA_HOME/bin, $CUDA_PATH/bin, PATH and /usr/local/cuda/bin.

    Raises:
        NativeUnavailable: nvcc was not found.
    """
    named = [f"{folder}/bin" for folder in (os.environ.get("CUDA_HOME"), os.environ.get("CUDA_PATH")) if folder]
    for where in (*named, None, "/usr/local/cuda/bin"):
        nvcc = shutil.which("nvcc", path=where)
        if nvcc is not None:
            return nvcc
    places = [*named, "PATH", "/usr/local/cuda/bin"]
    unset = "" if named else " ($CUDA_HOME is not set)"
    raise NativeUnavailable(f"no nvcc: searched in {', '.join(places)}{unset}")


def architecture(device: torch.device) -> str:
    """nvcc's name of the device's architecture, such as sm_90 for an H100."""
    major, minor = torch.cuda.get_device_capability(device)
    return f"sm_{major}{minor}"


@cache
def multiprocessors(device: torch.device) -> int:
    """Number of multiprocessors of the device. For the CPU it is that of an H100."""
    if device.type == "cpu":
        return 132
    count: int = torch.cuda.get_device_properties(device).multi_processor_count
    return count


@constant_when_compiled
def shared_memory(device: torch.device) -> int:
    """The most shared memory that a block can have, in bytes. For the CPU it is that of an H100."""
    if device.type == "cpu":
        return 227 * 1024
    # The stub of torch does not declare this attribute.
    size: int = torch.cuda.get_device_properties(device).shared_memory_per_block_optin  # type: ignore[attr-defined]
    return size


def call(library: ctypes.CDLL, name: str, arguments: ctypes.Structure, error: str, device: torch.device) -> None:
    """Launch kernels on torch's current stream of this device.

    Args:
        library: from `load`.
        name: an extern "C" function of (address of the arguments, device index, stream). It returns 0 or an error code.
        arguments: arguments of the kernels. The launch copies them.
        error: an extern "C" function that returns the text of an error code.
        device: device of the tensors.

    Raises:
        RuntimeError: the launch failed.
    """
    on_cpu = device.type == "cpu"
    index = 0 if on_cpu else _index(device)
    stream = 0 if on_cpu else torch.cuda.current_stream(device).cuda_stream
    with nullcontext() if on_cpu else torch.cuda.device(index):  # restores the caller's device
        code = getattr(library, name)(ctypes.byref(arguments), ctypes.c_int(index), ctypes.c_void_p(stream))
    if code:
        words = getattr(library, error)
        words.restype = ctypes.c_char_p
        raise RuntimeError(f"{name}: {words(code).decode()}")


def packed(x: Tensor, dtype: torch.dtype) -> Tensor:
    """The tensor in `dtype`, contiguous and aligned to 16 bytes. Copies only if necessary."""
    x = x.to(dtype).contiguous()
    return x if x.data_ptr() % 16 == 0 else x.clone()


def empty(device: torch.device, *shape: int) -> Tensor:
    """Uninitialized memory for results in float32."""
    return torch.empty(shape, dtype=torch.float32, device=device)


def address(x: Tensor | None) -> int | None:
    """Address of a tensor's first element; None for None. The caller keeps the tensor until the launch is done."""
    if x is None:
        return None
    return x.data_ptr()


def _index(device: torch.device) -> int:
    return torch.cuda.current_device() if device.index is None else device.index


@cache
def _load(source: str, defines: tuple[str, ...], target: str) -> ctypes.CDLL | NativeUnavailable:
    """The library, or the error to raise. Errors are cached too, because a failing compiler is slow."""
    definitions = [f"-D{define}" for define in defines]
    try:
        if target == "cpu":
            library = build(ROOT / source, find_compiler(), [*CPU_FLAGS, *definitions])
        else:
            flags = [*NVCC_FLAGS, f"-arch={target}", "-shared", "-Xcompiler", "-fPIC", *definitions]
            library = build(ROOT / source, [find_nvcc()], flags)
        return open_library(library)
    except NativeUnavailable as error:
        return error.with_traceback(None)


@cache
def _probe(index: int) -> str | None:
    try:
        library = load("native/cuda_probe.cu", ("ELEMENT=float",), torch.device("cuda", index))
    except NativeUnavailable as error:
        return str(error)
    with torch.cuda.device(index):  # restores the caller's device
        code = library.cuda_probe(ctypes.c_int(index))
    library.cuda_probe_error.restype = ctypes.c_char_p
    return f"an empty kernel does not run: {library.cuda_probe_error(code).decode()}" if code else None
