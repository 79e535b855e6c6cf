"""Whole files only: a file that has its final name is complete, whatever killed the process that wrote it."""

from __future__ import annotations

import errno
import fcntl
import json
import os
import shutil
import sys
import uuid
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO, Any

from ssm.base.errors import OutputError

NO_LOCKS = (errno.ENOSYS, errno.ENOLCK, errno.EOPNOTSUPP)


@contextmanager
def whole_file(path: str | Path) -> Iterator[Path]:
    """Yield a temporary path in the folder of `path`; on success sync it and rename it to `path`.

    An exception leaves what was at `path` before untouched and removes the temporary file.

    Raises:
        OutputError: the folder cannot be made or written.
    """
    path = Path(path)
    temporary = _temporary(path)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        yield temporary
        _sync(temporary)
        temporary.replace(path)
        _sync(path.parent)
    except OSError as error:
        raise OutputError(f"{path}: cannot be written ({error.strerror or error})") from error
    finally:
        with suppress(OSError):
            temporary.unlink(missing_ok=True)


@contextmanager
def whole_folder(path: str | Path) -> Iterator[Path]:
    """Yield a temporary folder beside `path`; on success sync all that is in it and rename it to `path`.

    An exception removes the temporary folder.

    Raises:
        OutputError: `path` is there already (an empty folder may be), or it cannot be written.
    """
    path = Path(path)
    temporary = _temporary(path)
    try:
        if path.exists() and (not path.is_dir() or any(path.iterdir())):
            raise OutputError(f"{path}: is there already; give the name of a new folder")
        temporary.mkdir(parents=True)
        yield temporary
        for inside in [*temporary.rglob("*"), temporary]:
            _sync(inside)
        temporary.replace(path)
        _sync(path.parent)
    except OutputError as error:  # of a file in it
        raise OutputError(str(error).replace(str(temporary), str(path))) from error
    except OSError as error:
        raise OutputError(f"{path}: cannot be written ({error.strerror or error})") from error
    finally:
        shutil.rmtree(temporary, ignore_errors=True)


def write_text(path: str | Path, text: str) -> None:
    """Write `text` as a whole file."""
    with whole_file(path) as temporary:
        temporary.write_text(text, encoding="utf-8")


def write_json(path: str | Path, value: Any) -> None:
    """Write `value` as an indented, key-sorted JSON file, whole."""
    write_text(path, json.dumps(value, indent=2, sort_keys=True) + "\n")


def absolute(paths: Sequence[str]) -> tuple[str, ...]:
    """Paths (or globs) as they are named from anywhere: ~ is the home folder, "a/../b" is b, links stay links."""
    return tuple(os.path.abspath(Path(path).expanduser()) for path in paths)  # noqa: PTH100 (resolve follows links)


def make_folder(path: str | Path) -> None:
    """Make a folder and its parents.

    Raises:
        OutputError: it cannot be made, or a file stands in its place.
    """
    try:
        Path(path).mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise OutputError(f"{path}: cannot be made a folder ({error.strerror or error})") from error


@contextmanager
def only_one(folder: Path) -> Iterator[None]:
    """Hold `folder` against other processes on this machine; wait for one that holds it. A kill releases it.

    Raises:
        OutputError: the folder cannot be written.
    """
    try:
        file = (folder / ".lock").open("a+")
    except OSError as error:
        raise OutputError(f"{folder}: cannot be written ({error.strerror or error})") from error
    with file:
        if not lock(file, alone=True):
            print(f"{folder}: another process works here; waiting for it", file=sys.stderr, flush=True)
            lock(file, alone=True, wait=True)
        yield


def lock(file: IO[str], alone: bool, wait: bool = False) -> bool:
    """Hold an open file, alone or with others, until it is closed. A kill releases it.

    Args:
        file: open for reading and writing: on NFS one kind of lock needs the one, the other the other.
        wait: until nobody is in the way.

    Returns:
        Whether nobody was in the way. Always so where the disk knows no locks (Lustre mounted without `flock`).
    """
    try:
        fcntl.flock(file, (fcntl.LOCK_EX if alone else fcntl.LOCK_SH) | (0 if wait else fcntl.LOCK_NB))
    except BlockingIOError:
        return False
    except OSError as error:
        if error.errno not in NO_LOCKS:
            raise
    return True


def remove_leftovers(folder: Path) -> None:
    """Delete the temporary files and folders that killed writers left in `folder` and below."""
    for leftover in list(folder.rglob(".*.tmp")):
        if leftover.is_dir():
            shutil.rmtree(leftover, ignore_errors=True)
        with suppress(OSError):
            leftover.unlink()


def _temporary(path: Path) -> Path:
    if path.name in ("", ".."):
        raise OutputError(f"'{path}': expected the name of a new file or folder")
    return path.with_name(f".{path.name}.{os.getpid()}-{uuid.uuid4().hex[:8]}.tmp")


def _sync(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
