"""The source files that a module of this package needs, and a hash of their content."""

from __future__ import annotations

import hashlib
import re
from functools import cache
from pathlib import Path

ROOT = Path(__file__).parents[2]  # the folder that holds the package
TEMPLATES = (".j2", ".css")  # files that a package reads besides its modules
# Imports in this package are absolute. The text is searched, because parsing hundreds of files takes almost a second.
IMPORT = re.compile(r"^[ \t]*(?:from (ssm\b[\w.]*) import (\([^)]*\)|.*)|import (ssm\b[\w.]*))", re.MULTILINE)
DISCOVERS = re.compile(r"\b(?:discover|plugin_union)\(")  # calls that import all modules of a folder


@cache
def code_hash(module: str, without: str = "") -> str:
    """A hash of the source files of all modules in `needed_by`, and of the templates in their folders.

    It changes with every character of these files, including comments.
    """
    paths = {_modules()[name] for name in needed_by(module, without)}
    folders = {path.parent for path in paths}
    paths |= {path for folder in folders for path in folder.iterdir() if path.suffix in TEMPLATES}
    digest = hashlib.sha256()
    for path in sorted(paths):
        content = path.read_bytes()
        digest.update(f"{path.relative_to(ROOT).as_posix()} {len(content)}\n".encode() + content)
    return digest.hexdigest()[:12]


def needed_by(module: str, without: str = "") -> frozenset[str]:
    """The module, all modules of this package that it imports, directly or indirectly, and their packages.

    Imports inside functions and imports for type checkers count. If a package lists its folder (`ssm.base.discovery`),
    all of its modules count.

    Args:
        without: a package to leave out, together with everything that only it needs.
    """
    needed: set[str] = set()
    waiting = [module]
    while waiting:
        parts = waiting.pop().split(".")
        for name in (".".join(parts[:count]) for count in range(1, len(parts) + 1)):
            if f"{name}.".startswith(f"{without}."):
                break
            if name not in needed and name in _modules():
                needed.add(name)
                waiting += _imports(name)
    return frozenset(needed)


@cache
def _imports(module: str) -> tuple[str, ...]:
    """The modules of this package that a module imports, and the names that it imports from them."""
    text = _modules()[module].read_text(encoding="utf-8")
    names = [name for name in _modules() if name.startswith(f"{module}.")] if DISCOVERS.search(text) else []
    for source, listed, whole in IMPORT.findall(text):
        names += [whole] if whole else [source, *(f"{source}.{word}" for word in re.findall(r"\w+", listed))]
    return tuple(names)


@cache
def _modules() -> dict[str, Path]:
    """Name -> source file of every module and package of this package."""
    modules = {}
    for path in (ROOT / "ssm").rglob("*.py"):
        parts = path.relative_to(ROOT).with_suffix("").parts
        modules[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path
    return modules
