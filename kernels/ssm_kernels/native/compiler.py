"""Compile C++ or CUDA with this machine's compilers, once, into a cache folder of the user.

The name of a library contains a hash of everything that it depends on: source, included headers, compiler and version,
flags, and processor. A library is written under a temporary name, synced and renamed. So two processes can build the
same library at once, and a killed build leaves no broken library. Temporary files older than a day are removed.
"""

from __future__ import annotations

import ctypes
import hashlib
import os
import re
import shlex
import shutil
import stat
import subprocess
import tempfile
import time
from collections.abc import Sequence
from functools import cache
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent  # of ssm_kernels
HEADERS = ROOT / "native"
INCLUDE = re.compile(rb'^[ \t]*#[ \t]*include[ \t]*"([^"]+)"', re.MULTILINE)
TIME_LIMIT = 900.0  # seconds that a compiler may take
FORGOTTEN = 86_400.0  # seconds after which a temporary file belongs to a killed build


class NativeUnavailable(RuntimeError):  # noqa: N818 - describes the machine, and is no error of the caller
    """Native code cannot be built or loaded on this machine. The message is one line that says why."""


def build(source: Path, compiler: Sequence[str], flags: Sequence[str], target: str = "") -> Path:
    """The shared library of one source file, from the cache or compiled now.

    Args:
        source: a C++ or CUDA file. Headers in double quotes are searched in its folder and in ssm_kernels/native.
        compiler: command of the compiler, as a list of words.
        flags: options of the compiler. `-o`, the include folders and the source are added.
        target: other things that the result depends on, such as the meaning of -march=native here.

    Raises:
        NativeUnavailable: there is no safe cache folder, or the compiler failed.
    """
    identity = _compiler_identity(tuple(compiler))
    key = hashlib.sha256()
    for part in (identity, "\0".join(flags), target):
        key.update(part.encode() + b"\1")
    for path in _with_headers(source):
        key.update(path.name.encode() + b"\0" + path.read_bytes() + b"\1")
    library = cache_folder() / f"{source.stem}-{key.hexdigest()[:24]}.so"
    if not library.exists():
        _compile(source, [*compiler, *flags, f"-I{source.parent}", f"-I{HEADERS}"], library)
    return library


def open_library(library: Path) -> ctypes.CDLL:
    """Load a built library.

    Raises:
        NativeUnavailable: the system refuses it (a missing runtime, or a folder mounted noexec).
    """
    try:
        return ctypes.CDLL(str(library))
    except OSError as error:
        raise NativeUnavailable(f"cannot load {library}: {error}") from None


def cache_folder() -> Path:
    """The folder of built libraries: $SSM_KERNELS_CACHE, or ssm_kernels in the user's cache folder.

    The folder must belong to the user, and nobody else may write to it, because its libraries are executed.

    Raises:
        NativeUnavailable: the folder cannot be made, or other users could put files there.
    """
    named, base = os.environ.get("SSM_KERNELS_CACHE"), os.environ.get("XDG_CACHE_HOME")
    try:
        caches = Path(base) if base else Path.home() / ".cache"
        folder = Path(named).expanduser() if named else caches / "ssm_kernels"
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        folder = folder.resolve(strict=True)
        status = folder.stat()
        above = [parent.stat() for parent in folder.parents]
    except (OSError, RuntimeError) as error:  # RuntimeError: no home
        raise NativeUnavailable(f"no cache folder for compiled kernels (set SSM_KERNELS_CACHE): {error}") from None
    if status.st_uid != os.getuid():
        raise NativeUnavailable(f"the cache folder {folder} belongs to another user; set SSM_KERNELS_CACHE")
    if status.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
        raise NativeUnavailable(f"others can write to the cache folder {folder}; set SSM_KERNELS_CACHE")
    if any(parent.st_mode & stat.S_IWOTH and not parent.st_mode & stat.S_ISVTX for parent in above):
        raise NativeUnavailable(f"others can replace the cache folder {folder}; set SSM_KERNELS_CACHE")
    return folder


def find_compiler() -> list[str]:
    """Command of the C++ compiler, as a list of words: $CXX, or the first of c++, g++ and clang++ that exists.

    Raises:
        NativeUnavailable: there is no compiler.
    """
    chosen = shlex.split(os.environ.get("CXX", ""))
    if chosen:
        if shutil.which(chosen[0]) is None:
            raise NativeUnavailable(f"no C++ compiler: CXX names {chosen[0]}, which was not found")
        return chosen
    for name in ("c++", "g++", "clang++"):
        if shutil.which(name) is not None:
            return [name]
    raise NativeUnavailable("no C++ compiler: searched for $CXX, c++, g++ and clang++")


def _compile(source: Path, command: list[str], library: Path) -> None:
    _remove_forgotten(library.parent)
    handle, name = tempfile.mkstemp(prefix=f".{library.stem}-", suffix=".so", dir=library.parent)
    os.close(handle)
    unfinished = Path(name)
    try:
        done = subprocess.run(
            [*command, "-o", name, str(source)], capture_output=True, text=True, errors="replace", timeout=TIME_LIMIT
        )
        if done.returncode:
            raise NativeUnavailable(f"{command[0]} cannot compile {source.name}: {_first_error(done.stderr)}")
        with unfinished.open("rb") as file:
            os.fsync(file.fileno())
        unfinished.replace(library)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise NativeUnavailable(f"{command[0]} cannot compile {source.name}: {error}") from None
    finally:
        unfinished.unlink(missing_ok=True)


def _remove_forgotten(folder: Path) -> None:
    """Remove the unfinished libraries of builds that were killed."""
    for unfinished in folder.glob(".*.so"):
        try:
            if time.time() - unfinished.stat().st_mtime > FORGOTTEN:
                unfinished.unlink()
        except OSError:  # another process removed it, or it belongs to another user
            continue


def _first_error(output: str) -> str:
    lines = [line.strip() for line in output.splitlines() if line.strip()]
    return next((line for line in lines if "error" in line.lower()), lines[-1] if lines else "it printed no error")


def _with_headers(source: Path) -> list[Path]:
    """The source and all files that it includes in double quotes, in the order of the first include."""
    files = [source]
    for path in files:  # the list grows during the loop
        for name in INCLUDE.findall(path.read_bytes()):
            places = (folder / name.decode() for folder in (path.parent, source.parent, HEADERS))
            header = next((place.resolve() for place in places if place.is_file()), None)
            if header is not None and header not in files:
                files.append(header)
    return files


@cache
def _compiler_identity(compiler: tuple[str, ...]) -> str:
    """Path and version of the compiler."""
    path = shutil.which(compiler[0])
    if path is None:
        raise NativeUnavailable(f"no compiler: {compiler[0]} was not found")
    try:
        version = subprocess.run([*compiler, "--version"], capture_output=True, text=True, errors="replace", timeout=60)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise NativeUnavailable(f"{compiler[0]} does not run: {error}") from None
    return "\0".join([str(Path(path).resolve()), *compiler, version.stdout])
