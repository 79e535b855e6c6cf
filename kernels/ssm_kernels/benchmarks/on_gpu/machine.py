"""The machine: device, versions, missing packages, and how to bring these to a machine without a network."""

from __future__ import annotations

import platform
import subprocess
import sys
from collections.abc import Iterable, Sequence
from importlib import metadata, util

from ssm_kernels.benchmarks.on_gpu.stages import KERNELS

# Import -> name in a package index, where they differ.
INDEX_NAMES = {"PIL": "pillow", "yaml": "pyyaml", "sklearn": "scikit-learn"}
NO_DEVICE = "torch finds no CUDA device; without one, rehearse: --rehearse"
RECORDED = ("torch", "triton", "numpy", "flash-linear-attention", "mamba-ssm", "causal-conv1d", "transformers")


def missing(packages: Iterable[str]) -> list[str]:
    """The packages (names of imports) that cannot be imported here."""
    return [name for name in packages if not _there(name)]


def wheels(packages: Sequence[str]) -> list[str]:
    """Two commands that bring packages (names of imports) here: one for a machine with a network, one for this one."""
    names = " ".join(sorted(INDEX_NAMES.get(name, name) for name in packages))
    version = f"{sys.version_info.major}.{sys.version_info.minor}"
    tags = " ".join(f"--platform manylinux{tag}_{platform.machine()}" for tag in ("_2_28", "2014"))
    return [
        f"pip download --only-binary=:all: --python-version {version} {tags} -c constraints.txt -d wheels {names}",
        f"{sys.executable} -m pip install --no-index --find-links wheels {names}",
    ]


def problem(rehearse: bool) -> str | None:
    """Why no stage with kernels can run here, in one line: torch is missing, or it finds no device."""
    if missing(["torch"]):
        download, install = wheels(missing(KERNELS))
        return f"torch is missing. On a machine with a network: {download}; here, with the folder wheels: {install}"
    import torch

    return None if rehearse or torch.cuda.is_available() else NO_DEVICE


def versions() -> dict[str, str]:
    """Versions of Python and of the packages that are installed."""
    found = {"python": platform.python_version()}
    for name in RECORDED:
        try:
            found[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            continue
    return found


def device(kind: str) -> dict[str, str]:
    """Name, compute capability and driver of the device "cuda"; for "cpu" only its name.

    Raises:
        RuntimeError: there is no CUDA device.
    """
    if kind == "cpu":
        return {"name": "cpu, rehearsed"}
    import torch

    if not torch.cuda.is_available():
        raise RuntimeError(NO_DEVICE)
    major, minor = torch.cuda.get_device_capability()
    return {
        "name": torch.cuda.get_device_name(),
        "capability": f"{major}.{minor}",
        "cuda": str(torch.version.cuda),
        "driver": _driver(),
    }


def _driver() -> str:
    command = ["nvidia-smi", "--query-gpu=driver_version", "--format=csv,noheader"]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=30, check=True)
    except (OSError, subprocess.SubprocessError):
        return "unknown"
    return done.stdout.split("\n")[0].strip()


def _there(name: str) -> bool:
    try:
        return util.find_spec(name) is not None
    except (ImportError, ValueError):
        return False
