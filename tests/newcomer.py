"""What a newcomer does: a few files and lines in a copy of the package, which is then used as it is."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]


def add(root: Path, files: dict[str, str], lines: dict[str, tuple[str, str, str]] | None = None) -> None:
    """Write files, and lines of registries where there are any, in a copy of the package below `root`.

    Args:
        files: text by path inside the package.
        lines: by registry's folder inside the package: what it imports, how its list begins, and the list's line.
    """
    shutil.copytree(ROOT / "ssm", root / "ssm", ignore=shutil.ignore_patterns("__pycache__"))
    for name, text in files.items():
        (root / "ssm" / name).write_text(text, encoding="utf-8")
    for folder, (imported, registry, line) in (lines or {}).items():
        path = root / "ssm" / folder / "__init__.py"
        head, tail = path.read_text(encoding="utf-8").split(registry)
        opened, rest = tail.split("\n", 1)
        path.write_text(f"{head}{imported}{registry}{opened}\n{line}{rest}", encoding="utf-8")


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
