"""nvcc compiles every CUDA source for A100 and H100 within their registers. Errors name the missing programs."""

from __future__ import annotations

import ctypes
import re
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from kernels.cases import exhaustive
from ssm_kernels import backends
from ssm_kernels.native import cuda as native
from ssm_kernels.native.compiler import HEADERS, ROOT, NativeUnavailable

SCAN, CONVOLUTION = "selective_scan/selective_scan.cu", "causal_conv1d/causal_conv1d.cu"
FUNCTION = re.compile(r"Function properties for (\S+)\n.*?(\d+) bytes spill stores, (\d+) bytes spill loads")


def nvcc_missing() -> str | None:
    """Why nvcc is not available, or None."""
    try:
        native.find_nvcc()
    except NativeUnavailable as error:
        return str(error)
    return None


with_nvcc = pytest.mark.skipif(nvcc_missing() is not None, reason=str(nvcc_missing()))


def compile_cubin(source: str, defines: list[str], architecture: str, folder: Path) -> str:
    """The output of ptxas for the kernels of a source file."""
    path = ROOT / source
    command = [native.find_nvcc(), *native.NVCC_FLAGS, f"-arch={architecture}", "-cubin", "-Xptxas", "-v"]
    command += [*(f"-D{define}" for define in defines), f"-I{path.parent}", f"-I{HEADERS}"]
    done = subprocess.run([*command, "-o", str(folder / "kernels.cubin"), str(path)], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert "warning" not in done.stderr
    return done.stderr


@with_nvcc
@pytest.mark.parametrize(
    ("source", "defines", "kernels", "spill_limit", "architecture"),  # the limit in bytes per thread
    [
        *exhaustive(
            (SCAN, ["ELEMENT=__nv_bfloat16", "STATES=16", "SOFTPLUS=true"], 9, 96, "sm_80"),
            (SCAN, ["ELEMENT=__nv_bfloat16", "STATES=16", "SOFTPLUS=true"], 9, 96, "sm_90"),
            (SCAN, ["ELEMENT=__half", "STATES=16", "SOFTPLUS=false"], 9, 192, "sm_90a"),
            (SCAN, ["ELEMENT=float", "STATES=64", "SOFTPLUS=true"], 9, 192, "sm_90"),
            (CONVOLUTION, ["ELEMENT=__nv_bfloat16", "TAPS=4"], 4, 0, "sm_80"),
            (CONVOLUTION, ["ELEMENT=float", "TAPS=3"], 4, 0, "sm_90a"),
        ),
        (CONVOLUTION, ["ELEMENT=__nv_bfloat16", "TAPS=4"], 4, 0, "sm_90"),
    ],
    ids=lambda value: "-".join(value) if isinstance(value, list) else None,
)
def test_nvcc_compiles_it_within_the_registers(
    source: str, defines: list[str], kernels: int, spill_limit: int, architecture: str, tmp_path: Path
) -> None:
    """Values that do not fit into registers go to slow memory, without any warning."""
    spilled = FUNCTION.findall(compile_cubin(source, defines, architecture, tmp_path))
    assert len(spilled) == kernels
    assert all(int(stores) <= spill_limit and int(loads) <= spill_limit for _, stores, loads in spilled), spilled


@with_nvcc
def test_the_probe_compiles_and_links(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With the flags of the first use. The library loads without a GPU, and reports that there is none."""
    monkeypatch.setenv("SSM_KERNELS_CACHE", str(tmp_path))
    monkeypatch.setattr(native, "architecture", lambda device: "sm_90")
    monkeypatch.setattr(native, "_load", native._load.__wrapped__)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda device: (9, 0))
    monkeypatch.setattr(torch.cuda, "device", nullcontext)
    monkeypatch.setattr(native, "_probe", native._probe.__wrapped__)
    reason = native.why_not(torch.device("cuda", 0))
    assert [path.suffix for path in tmp_path.iterdir()] == [".so"]
    assert reason is None or reason.startswith("an empty kernel does not run: ")


def test_the_probe_restores_the_current_device(monkeypatch: pytest.MonkeyPatch) -> None:
    current = [0]

    @contextmanager
    def device(index: int) -> Iterator[None]:
        before = current[0]
        yield
        current[0] = before

    def probe(index: ctypes.c_int) -> int:
        current[0] = index.value
        return 0

    library = SimpleNamespace(cuda_probe=probe, cuda_probe_error=lambda error: b"")
    monkeypatch.setattr(torch.cuda, "device", device)
    monkeypatch.setattr(native, "load", lambda *arguments: library)
    assert native._probe.__wrapped__(1) is None
    assert current == [0]


def test_where_nvcc_is_searched(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(native.shutil, "which", lambda name, path=None: None)
    for name in ("CUDA_HOME", "CUDA_PATH"):
        monkeypatch.delenv(name, raising=False)
    with pytest.raises(NativeUnavailable, match=r"no nvcc: searched in PATH, /usr/local/cuda/bin \(\$CUDA_HOME is not"):
        native.find_nvcc()
    monkeypatch.setenv("CUDA_HOME", str(tmp_path))
    with pytest.raises(NativeUnavailable, match=rf"no nvcc: searched in {tmp_path}/bin, PATH, /usr/local/cuda/bin$"):
        native.find_nvcc()
    monkeypatch.undo()
    found = tmp_path / "bin" / "nvcc"
    found.parent.mkdir()
    found.write_text("#!/bin/sh\n")
    found.chmod(0o755)
    monkeypatch.setenv("CUDA_HOME", str(tmp_path))
    assert native.find_nvcc() == str(found)


@pytest.mark.parametrize("operation", ["selective_scan", "causal_conv1d"])
def test_reasons_why_cuda_is_unavailable(operation: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def why(device: str) -> str | None:
        return backends.unavailable(operation, "cuda", torch.device(device))

    assert why("cpu") == "it needs a CUDA device, not cpu"
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    assert why("cuda") == "no CUDA device (torch.cuda.is_available() is false)"
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda device: (7, 5))
    assert why("cuda:0") == "it needs a GPU of sm_80 or newer, not sm_75"
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda device: (9, 0))
    monkeypatch.setattr(native, "_probe", native._probe.__wrapped__)
    monkeypatch.setattr(native, "_load", native._load.__wrapped__)
    monkeypatch.setattr(native.shutil, "which", lambda name, path=None: None)
    reason = why("cuda:0")
    assert reason is not None
    assert reason.startswith("no nvcc: searched in ")
