"""Ahead-of-time compilation of recorded launches without a GPU, and the resources of each kernel."""

from __future__ import annotations

import re
import subprocess
import tempfile
from pathlib import Path
from typing import Any, NamedTuple

import torch
import triton
from ssm_kernels.native.triton_launch import Launch
from torch import Tensor
from triton._C.libtriton import ir
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource, make_backend

POINTERS = {
    torch.float64: "*fp64",
    torch.float32: "*fp32",
    torch.bfloat16: "*bf16",
    torch.float16: "*fp16",
    torch.uint8: "*u8",
    torch.int32: "*i32",
}
CUOBJDUMP = str(Path(triton.__file__).parent / "backends" / "nvidia" / "bin" / "cuobjdump")


class Resources(NamedTuple):
    """Resources of one program of a kernel."""

    name: str
    shared: int  # bytes of shared memory
    registers: int  # per thread
    spilled: int  # bytes of stack per thread, for values that do not fit into registers


def compiled_ahead(launch: Launch, capability: int) -> Any:
    """A recorded launch, compiled for compute capability 80 (A100) or 90 (H100), specialized as at run time.

    Raises:
        Exception: an error of Triton or ptxas, if the kernel does not compile.
    """
    return triton.compile(_source(launch), target=GPUTarget("cuda", capability, 32), options=_options(launch))


def compile_ahead(launch: Launch, capability: int) -> Resources:
    """The resources of `compiled_ahead`."""
    compiled = compiled_ahead(launch, capability)
    registers, spilled = _registers(compiled.asm["cubin"])
    return Resources(launch.kernel.__name__, compiled.metadata.shared, registers, spilled)


def intermediate_code(launch: Launch) -> str:
    """A recorded launch as Triton's intermediate code (TTIR): one function, before Triton chooses layouts."""
    target = GPUTarget("cuda", 90, 32)
    backend, source, context = make_backend(target), _source(launch), ir.context()
    options = backend.parse_options(_options(launch))
    ir.load_dialects(context)
    backend.load_dialects(context)
    functions, modules = backend.get_codegen_implementation(options), backend.get_module_map()
    made = source.make_ir(target, options, functions, modules, context)
    return str(backend.make_ttir(made, {}, options, target.arch))


def _source(launch: Launch) -> ASTSource:
    names = launch.kernel.arg_names
    signature: dict[str, str] = {}
    constants: dict[str, Any] = dict(launch.constants)
    attributes: dict[tuple[int, ...], list[list[object]]] = {}
    for index, (name, value) in enumerate(zip(names, launch.arguments, strict=False)):
        if isinstance(value, Tensor):
            signature[name] = POINTERS[value.dtype]
            attributes[(index,)] = [["tt.divisibility", 16]]
        elif value is None or value == 1:
            constants[name] = value
        else:
            signature[name] = "i32" if abs(value) < 2**31 else "i64"
            if value % 16 == 0:
                attributes[(index,)] = [["tt.divisibility", 16]]
    signature |= dict.fromkeys(constants, "constexpr")
    return ASTSource(launch.kernel, {name: signature[name] for name in names}, constants, attributes)


def _options(launch: Launch) -> dict[str, Any]:
    return {"num_warps": launch.num_warps, "num_stages": launch.num_stages, "enable_fp_fusion": True}


def _registers(cubin: bytes) -> tuple[int, int]:
    """Registers and bytes of stack per thread."""
    with tempfile.NamedTemporaryFile(suffix=".cubin") as file:
        file.write(cubin)
        file.flush()
        log = subprocess.run([CUOBJDUMP, "-res-usage", file.name], capture_output=True, text=True, check=True).stdout
    used = re.search(r"REG:(\d+) STACK:(\d+)", log)
    assert used is not None, log
    return int(used[1]), int(used[2])
