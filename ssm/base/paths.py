"""Paths and globs that users give: ~, absolute paths, wildcards, and whether one path is inside another."""

from __future__ import annotations

import os
from collections.abc import Sequence
from fnmatch import fnmatchcase
from glob import has_magic
from itertools import takewhile
from pathlib import Path

from ssm.base.errors import ConfigError, OutputError


def home_expanded(path: str) -> Path:
    """The path, with the home folder in the place of ~. If there is no such user, ~ is part of a name."""
    return Path(os.path.expanduser(path))  # noqa: PTH111 (Path.expanduser raises if there is no such user)


def is_utf8(name: str) -> bool:
    """Whether a name is text in UTF-8. Python reads other bytes of a name as halves of surrogate pairs."""
    try:
        name.encode()
    except UnicodeEncodeError:
        return False
    return True


def path_names(paths: str | Path | Sequence[str | Path]) -> tuple[str, ...]:
    """The names of one path or glob, or of several."""
    return tuple(str(path) for path in ((paths,) if isinstance(paths, str | Path) else paths))


def absolute(paths: Sequence[str]) -> tuple[str, ...]:
    """Absolute paths or globs: ~ is replaced by the home folder, "a/../b" becomes "b", and links are not followed.

    Raises:
        ConfigError: a path is empty. It would mean the current folder.
    """
    if not all(paths):
        raise ConfigError("a path is '': expected the name of a file or a folder")
    return tuple(os.path.abspath(home_expanded(path)) for path in paths)  # noqa: PTH100 (resolve follows links)


def before_wildcards(path: Path) -> Path:
    """The part of a glob before the first wildcard. A path that exists is no glob, whatever its name is."""
    if os.path.exists(path):  # noqa: PTH110 (a name may be too long)
        return path
    return Path(*takewhile(lambda part: not has_magic(part), path.parts))


def begins_with(parts: Sequence[str], patterns: Sequence[str]) -> bool:
    """Whether the first of these parts of a path match the parts of a glob."""
    if not patterns:
        return True
    if patterns[0] == "**":
        return any(begins_with(parts[skipped:], patterns[1:]) for skipped in range(len(parts) + 1))
    return bool(parts) and fnmatchcase(parts[0], patterns[0]) and begins_with(parts[1:], patterns[1:])


def is_inside(path: Path, folder: Path) -> bool:
    """Whether a path is a folder or in it, with and without links followed. A loop of links is no error."""
    return any(Path(of(path)).is_relative_to(of(folder)) for of in (os.path.abspath, os.path.realpath))


def require_outside(folder: str | Path, texts: Sequence[str]) -> None:
    """Check that a new folder would not be read as text by the next command.

    Args:
        texts: files, folders or globs. All files in a folder are text, also in a folder that a glob matches. Whether a
            glob will match single files in the new folder is not checked.

    Raises:
        OutputError: the folder is one of the texts, or inside of it.
    """
    new = Path(os.path.realpath(folder))  # unlike Path.resolve, no error for a loop of links
    for text in texts:
        given = Path(os.path.normpath(home_expanded(text)))
        start = before_wildcards(given)
        wildcards = given.parts[len(start.parts) :]
        real = os.path.realpath(start)
        if not new.is_relative_to(real):
            continue
        below = new.relative_to(real).parts
        hidden = wildcards and any(part.startswith(".") for part in below)  # never read through a glob
        if not hidden and begins_with(below, wildcards):
            raise OutputError(f"{folder}: is inside {text}, which is read as text; give another -o")
