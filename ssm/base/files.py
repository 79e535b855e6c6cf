"""Write files and folders atomically. A file with its final name is complete, even if its writer was killed."""

from __future__ import annotations

import errno
import fcntl
import json
import os
import re
import shutil
import sys
import uuid
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from fnmatch import fnmatchcase
from glob import iglob
from pathlib import Path
from typing import IO, Any

from ssm.base.errors import FULL, OutputError, UserError, first_line
from ssm.base.paths import begins_with, home_expanded, is_inside

FINISHED = ".made"  # suffix of the empty file with which the workflow marks a finished answer in its folder
LOCK = ".lock"  # file in a folder in which one process works at a time
LEFTOVER = ".*.tmp"  # temporary files and folders
OF_SYSTEM = (".nfs*", ".DS_Store")  # files that a network disk or a file browser writes
NO_LOCKS = (errno.ENOSYS, errno.ENOLCK, errno.EOPNOTSUPP)


@contextmanager
def reading(error: type[UserError], path: str | Path | None = None) -> Iterator[None]:
    """Raise each OSError as an `error` that names the path. `Path.exists` and others raise without permission.

    Args:
        path: the file or folder that is read. Errors that come after a file was opened do not name it.
    """
    try:
        yield
    except OSError as problem:
        reason, where = problem.strerror or first_line(problem), problem.filename or path
        raise error(f"{where}: cannot be read ({reason})" if where else reason) from problem


@contextmanager
def writing(path: Path, within: Path | None = None) -> Iterator[None]:
    """Raise each OSError as an OutputError about `path`.

    Args:
        within: errors of the operating system that are not about a file in this folder stay as they are, unless the
            disk is full. Libraries that write files raise others.
    """
    try:
        yield
    except OSError as error:
        file = Path(os.fsdecode(error.filename)).absolute() if isinstance(error.filename, str | bytes) else None
        if within and error.errno not in (None, *FULL) and not (file and file.is_relative_to(within.absolute())):
            raise
        raise OutputError(f"{path}: cannot be written ({error.strerror or error})") from error


@contextmanager
def atomic_file(path: str | Path, sync: bool = True) -> Iterator[Path]:
    """Yield a temporary path in the folder of `path`. On success, rename it to `path`.

    After an exception the temporary file is removed, and `path` is unchanged.

    Args:
        sync: wait until the file is on the disk, so that it is whole even after a power failure.

    Raises:
        OutputError: the folder cannot be made or written, or `path` does not end in a name.
    """
    path = _named(path, "file")
    temporary = _temporary(path)
    try:
        with writing(path):
            path.parent.mkdir(parents=True, exist_ok=True)
            yield temporary
            if sync:
                _sync(temporary)
            temporary.replace(path)
            if sync:
                _sync(path.parent)
    finally:
        with suppress(OSError):
            temporary.unlink(missing_ok=True)


def require_writable(path: Path) -> None:
    """Raise now what writing the file `path` would raise later, after long work.

    Raises:
        OutputError: `path` is a folder or does not end in a name, or its folder cannot be made or written.
    """
    temporary = _temporary(_named(path, "file"))
    with writing(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        if path.is_dir():
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR))
        temporary.touch()
        temporary.unlink()


@contextmanager
def atomic_folder(path: str | Path) -> Iterator[Path]:
    """Yield a temporary folder next to `path`. On success, sync its content and rename it to `path`.

    After an exception the temporary folder is removed. If `path` is a link, all this happens where it points to.

    Raises:
        OutputError: `path` exists and is not an empty folder, does not end in a name, or cannot be written.
    """
    path = new_folder(path)
    with writing(path):
        if path.exists() and (not path.is_dir() or any(path.iterdir())):
            raise OutputError(f"{path}: already exists; give the name of a new folder")
    with scratch_folder(path) as temporary:
        yield temporary
        with writing(path):
            for inside in [*temporary.rglob("*"), temporary]:
                _sync(inside)
            temporary.replace(path)
            _sync(path.parent)


@contextmanager
def scratch_folder(path: str | Path) -> Iterator[Path]:
    """Yield a temporary folder next to `path`, and remove it afterwards.

    A network disk keeps files that are still open. `name_lock` removes them the next time.

    Raises:
        OutputError: `path` does not end in a name, or the folder cannot be written.
    """
    path = new_folder(path)
    temporary = _temporary(path)
    try:
        with writing(path):
            temporary.mkdir(parents=True)
        with writing(path, within=temporary):
            yield temporary
    except OutputError as error:  # from a file inside the folder
        raise OutputError(str(error).replace(str(temporary), str(path))) from error
    finally:
        shutil.rmtree(temporary, ignore_errors=True)


@contextmanager
def replacing(
    folder: Path, version: str | None, mark: str, written: Iterable[str], inputs: Sequence[str] = ()
) -> Iterator[Path]:
    """Yield a new folder, which replaces `folder` on success. Until then the old folder stays.

    The new folder keeps the unfinished work of a killed process with the same version. Unfinished work of other
    versions is deleted. If `folder` is a link, the folder that it points to is replaced.

    Args:
        version: eight hex digits. None: yields `folder` itself.
        mark: name of a file that every finished folder of this kind contains. Other folders are never replaced.
        written: globs, relative to the folder, of all that the command writes there. A folder that matches stands for
            everything in it. A folder with another file is never replaced. The globs are read when a folder that a
            kill had moved is back in its place.
        inputs: files, folders or globs that are read, or other names. A folder that contains one is never replaced.

    Raises:
        OutputError: `folder` is of another kind, contains an input, another file or the current folder, does not end
            in a name, or cannot be written; or another process replaces it.
    """
    if version is None:
        yield folder
        return
    folder = new_folder(folder)
    new, old = (folder.with_name(f".{folder.name}.{which}.part") for which in (version, "replaced"))
    with name_lock(folder):
        with writing(folder):
            if (old / mark).exists() and not any(folder.glob("*")):  # a kill came between the two renames below
                old.replace(folder)
            written = [*written]
            if folder.exists() and not (folder / mark).exists() and not _is_empty(folder):
                raise OutputError(
                    f"{folder}: contains no {mark}, so it was not made by this command and is not replaced"
                )
            if (contained := _first_inside(folder, inputs)) is not None:
                raise OutputError(f"{folder}: contains {contained}, which would be deleted; give another -o")
            _require_no_others(folder, written)
            if old.exists():
                shutil.rmtree(old)
            for begun in _parts(folder):
                with name_lock(begun):  # removes what killed writers left next to it
                    if begun != new and begun.exists():
                        shutil.rmtree(begun)
        yield new
        with writing(folder):
            _require_no_others(folder, written)  # the user may have added a file meanwhile
            if folder.exists():
                folder.replace(old)
            new.replace(folder)
            with suppress(OSError):
                (old / mark).unlink()  # so that a folder that is half deleted is never moved back
            shutil.rmtree(old, ignore_errors=True)


def _first_inside(folder: Path, inputs: Sequence[str]) -> str | None:
    """The current folder, or the first of these paths or globs with a file in a folder, through links or not."""
    if is_inside(Path(), folder):
        return "the current folder"
    for path in inputs:
        name = str(home_expanded(path))
        # a file, or a link to nothing, is no glob
        found = [name] if os.path.lexists(name) else iglob(name, recursive=True)  # noqa: PTH207 (an absolute glob)
        if any(is_inside(Path(one), folder) for one in found):
            return path
    return None


def _require_no_others(folder: Path, written: Sequence[str]) -> None:
    """Check that a folder has only files that match a glob in `written`, or that ssm writes into any folder."""
    known = [Path(glob).parts for glob in (*written, LOCK, f".*{FINISHED}")]
    for path in sorted(folder.rglob("*")):
        within = path.relative_to(folder)
        is_ours = any(begins_with(within.parts, glob) for glob in known)
        leftover = any(fnmatchcase(part, glob) for part in within.parts for glob in (LEFTOVER, *OF_SYSTEM))
        if not (is_ours or leftover or (path.is_dir() and not path.is_symlink())):
            raise OutputError(
                f"{folder}: contains {within}, which ssm did not write; move it to another folder, or give another -o"
            )


def _is_empty(folder: Path) -> bool:
    """Whether a folder has no file, except for those that mark it as finished for the workflow."""
    return folder.is_dir() and all(path.suffix == FINISHED for path in folder.iterdir())


def write_text(path: str | Path, text: str, sync: bool = True) -> None:
    """Write `text` to a file, atomically. `sync`: as in `atomic_file`."""
    with atomic_file(path, sync) as temporary:
        temporary.write_text(text, encoding="utf-8")


def write_json(path: str | Path, value: Any) -> None:
    """Write `value` to an indented JSON file with sorted keys, atomically."""
    write_text(path, json.dumps(value, indent=2, sort_keys=True) + "\n")


def make_folder(path: str | Path) -> None:
    """Make a folder and its parents.

    Raises:
        OutputError: it cannot be made, or a file has this name.
    """
    try:
        Path(path).mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise OutputError(f"{path}: cannot be made a folder ({error.strerror or error})") from error


@contextmanager
def folder_lock(folder: Path) -> Iterator[None]:
    """Lock `folder` for this process, on this machine. Wait while another process has the lock. A kill releases it.

    Raises:
        OutputError: the folder cannot be written.
    """
    with writing(folder):
        file = (folder / LOCK).open("a+")
    with file:
        if not lock(file, alone=True):
            print(f"{folder}: another process works in this folder; waiting for it", file=sys.stderr, flush=True)
            lock(file, alone=True, wait=True)
        yield


@contextmanager
def name_lock(path: str | Path) -> Iterator[None]:
    """Lock the name of a future folder for this process, on this machine. A kill releases the lock.

    Temporary folders of killed writers of this name (`atomic_folder`) are removed. On a disk without locks they stay,
    because they could belong to a running process.

    Raises:
        OutputError: another process is writing this folder, or nothing can be written there.
    """
    path = new_folder(path)
    file = path.with_name(f".{path.name}.lock")
    with ExitStack() as opened:
        with writing(path):
            path.parent.mkdir(parents=True, exist_ok=True)
            held, other = (opened.enter_context(file.open("a+")) for _ in range(2))
            if not lock(held, alone=True) or not _is_open_at(held, file):
                raise OutputError(f"{path}: another process is writing it")
            if not lock(other, alone=True):  # the disk supports locks: our own lock blocks a second one
                for leftover in [found for found in path.parent.iterdir() if _is_temporary(found, path)]:
                    shutil.rmtree(leftover, ignore_errors=True)
        try:
            yield
        finally:
            with writing(path):
                file.unlink(missing_ok=True)


def lock(file: IO[str], alone: bool, wait: bool = False) -> bool:
    """Lock an open file, exclusively (`alone`) or shared, until it is closed. A kill releases the lock.

    Args:
        file: open for reading and writing. On NFS, shared locks need reading and exclusive locks need writing.
        wait: wait until the lock is free.

    Returns:
        Whether the file is locked now. Always true on disks without locks (Lustre mounted without `flock`).
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
    for leftover in list(folder.rglob(LEFTOVER)):
        if leftover.is_dir():
            shutil.rmtree(leftover, ignore_errors=True)
        with suppress(OSError):
            leftover.unlink()


def new_folder(path: str | Path) -> Path:
    """The path at which a new folder is made: of a link, the path that it points to, because a rename replaces links.

    Raises:
        OutputError: the path does not end in a name, or its link points to itself.
    """
    path = Path(path)
    if os.path.islink(path):  # noqa: PTH114 (a name may be too long)
        path = Path(os.path.realpath(path))
        if path.is_symlink():
            raise OutputError(f"{path}: is a link to itself, expected the name of a new folder")
    return _named(path, "folder")


def _named(path: str | Path, what: str) -> Path:
    """The path, if its last part is a name that a new file or folder can have."""
    path = Path(path)
    if path.name in ("", ".."):
        raise OutputError(f"'{path}': expected the name of a new {what}, got the folder itself")
    return path


def _is_open_at(file: IO[str], path: Path) -> bool:
    """Whether an open file is still the file at `path`. The previous owner of the lock may have deleted it."""
    try:
        return os.path.samestat(os.fstat(file.fileno()), path.stat())
    except FileNotFoundError:
        return False


def _temporary(path: Path) -> Path:
    """A name next to `path` that no other process uses."""
    return path.with_name(f".{path.name}.{os.getpid()}-{uuid.uuid4().hex[:8]}.tmp")


def _parts(path: Path) -> set[Path]:
    """The folders in which `replacing` has begun a new `path`, also those of which only files next to them are left."""
    name = rf"\.?(\.{re.escape(path.name)}\.[0-9a-f]{{8}}\.part)(\..*)?"
    matches = [re.fullmatch(name, found.name) for found in path.parent.glob("*")]
    return {path.with_name(match[1]) for match in matches if match is not None}


def _is_temporary(found: Path, path: Path) -> bool:
    """Whether `found` is a name that `_temporary` gives for `path`."""
    return re.fullmatch(rf"\.{re.escape(path.name)}\.\d+-[0-9a-f]{{8}}\.tmp", found.name) is not None


def _sync(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
