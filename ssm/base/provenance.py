"""Provenance of a result: code, packages, machine and time. It is stored inside every result."""

from __future__ import annotations

import os
import platform
import subprocess
from datetime import UTC, datetime
from functools import lru_cache
from importlib import metadata
from pathlib import Path
from typing import Any

import ssm

PACKAGES = (
    *("torch", "polars", "pyarrow", "numpy", "tokenizers", "safetensors", "transformers"),
    *("snakemake", "matplotlib"),
)


@lru_cache(maxsize=1)
def environment() -> dict[str, Any]:
    """Code version, package versions and machine, as plain data. Imports none of these packages."""
    versions = {}
    for package in PACKAGES:
        try:
            versions[package] = metadata.version(package)
        except metadata.PackageNotFoundError:
            continue
    return {
        "code": {"ssm": ssm.__version__, "commit": _commit()},
        "packages": versions,
        "machine": {
            "python": platform.python_version(),
            "system": f"{platform.system()} {platform.machine()}",
            "processor": _processor(),
            "cores": os.cpu_count(),
        },
    }


def provenance(**fields: Any) -> dict[str, Any]:
    """The environment, the current time (UTC), and the caller's fields (spec, seeds, device, seconds ...)."""
    return environment() | {"written": datetime.now(UTC).isoformat(timespec="seconds")} | fields


def _processor() -> str:
    try:
        for line in Path("/proc/cpuinfo").read_text().splitlines():
            if line.startswith("model name"):
                return line.split(":", 1)[1].strip()
    except OSError:
        pass
    return platform.processor() or "unknown"


def _commit() -> str:
    """The commit of the source tree, with "-dirty" if there are uncommitted changes; "unknown" without git."""
    root = Path(__file__).resolve().parents[2]
    if not (root / ".git").exists():  # an installed copy, perhaps inside another project's repository
        return "unknown"
    try:
        text = subprocess.run(
            ["git", "-C", str(root), "describe", "--always", "--dirty", "--abbrev=12"],
            capture_output=True,
            text=True,
            timeout=10,
            check=True,
        ).stdout
    except (OSError, subprocess.SubprocessError):
        return "unknown"
    return text.strip()
