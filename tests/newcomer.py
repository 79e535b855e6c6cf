"""Helpers to test an addition as in CONTRIBUTING.md: new files in a copy of the package, and no other change."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]


def shown(what: str) -> dict[str, str]:
    """The files in the section "Add a `what`" of CONTRIBUTING.md: text by path inside the package."""
    guide = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
    (section,) = re.findall(rf"^### Add an? {what}\n(.*?)(?=^##)", guide, re.M | re.S)
    found = re.findall(r"^```python\n# ssm/(\S+)\n(.*?)^```", section, re.M | re.S)
    assert found, f"CONTRIBUTING.md shows no file of a {what}"
    return dict(found)


def add(root: Path, files: dict[str, str]) -> None:
    """Copy the package below `root`, and add files: text by path inside the package."""
    shutil.copytree(ROOT / "ssm", root / "ssm", ignore=shutil.ignore_patterns("__pycache__"))
    for name, text in files.items():
        (root / "ssm" / name).write_text(text, encoding="utf-8")


def python(root: Path, *words: str) -> subprocess.CompletedProcess[str]:
    """Run Python with the copy of the package."""
    path = os.pathsep.join(map(str, (root, ROOT / "kernels", ROOT / "tests")))
    return subprocess.run(
        [sys.executable, *words],
        cwd=root,
        env=os.environ | {"PYTHONPATH": path},
        capture_output=True,
        text=True,
        check=False,
    )
