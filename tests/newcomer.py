"""What a newcomer does: a few files in a copy of the package, which is then used as it is.

The files are those that CONTRIBUTING.md shows: `shown("measurement")` are the ones of its section "Add a measurement".
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]


def shown(what: str) -> dict[str, str]:
    """The files of a section of CONTRIBUTING.md, text by path inside the package; a file's first line names it."""
    guide = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
    (section,) = re.findall(rf"^### Add an? {what}\n(.*?)(?=^##)", guide, re.M | re.S)
    found = re.findall(r"^```python\n# ssm/(\S+)\n(.*?)^```", section, re.M | re.S)
    assert found, f"CONTRIBUTING.md shows no file of a {what}"
    return dict(found)


def add(root: Path, files: dict[str, str]) -> None:
    """Write files, text by path inside the package, in a copy of the package below `root`."""
    shutil.copytree(ROOT / "ssm", root / "ssm", ignore=shutil.ignore_patterns("__pycache__"))
    for name, text in files.items():
        (root / "ssm" / name).write_text(text, encoding="utf-8")


def python(root: Path, *words: str) -> subprocess.CompletedProcess[str]:
    """Run Python on the copy."""
    path = os.pathsep.join(map(str, (root, ROOT / "kernels", ROOT / "tests")))
    return subprocess.run(
        [sys.executable, *words],
        cwd=root,
        env=os.environ | {"PYTHONPATH": path},
        capture_output=True,
        text=True,
        check=False,
    )
