"""Compile C++ or CUDA with the compilers of this machine, once, into a cache of the user's own.

A built library's name holds a hash of everything that it depends on: the source and the headers that it includes, the
compiler and its version, the flags, and the processor. It is written under a temporary name, synced and renamed, so
that two processes may build the same one at once and a killed build leaves nothing that looks whole. What killed
builds leave is removed by a build of the days after.
"""

from __future__ import annotations

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
TIME_LIMIT = 900.0  # seconds a compiler may take
FORGOTTEN = 86_400.0  # seconds after which no build is still under way


class NativeUnavailable(RuntimeError):  # noqa: N818 - a state of the machine rather than an error of the caller
    """Native code cannot be built or loaded on this machine; the message is one line that says why."""


def build(source: Path, compiler: Sequence[str], flags: Sequence[str], target: str = "") -> Path:
    """The shared library of one source file, from the cache or compiled now.

    Args:
        source: a C++ or CUDA file. Headers in double quotes are looked for beside it and in ssm_kernels/native.
        compiler: the compiler's command, as words.
        flags: its options; `-o`, the include folders and the source are added.
        target: anything else that the result depends on, such as what -march=native means here.

    Raises:
        NativeUnavailable: no safe cache folder, or the compiler failed.
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


def cache_folder() -> Path:
    """The folder for built libraries: $SSM_KERNELS_CACHE, or ssm_kernels in the user's cache folder.

    It must be the user's own, and writable by nobody else: what lies in it is run.

    Raises:
        NativeUnavailable: it cannot be made, or others could put files there.
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
    """The C++ compiler's command, as words: $CXX, or the first of c++, g++ and clang++.

    Raises:
        NativeUnavailable: there is none.
    """
    chosen = shlex.split(os.environ.get("CXX", ""))
    if chosen:
        if shutil.which(chosen[0]) is None:
            raise NativeUnavailable(f"no C++ compiler: CXX names {chosen[0]}, which is not there")
        return chosen
    for name in ("c++", "g++", "clang++"):
        if shutil.which(name) is not None:
            return [name]
    raise NativeUnavailable("no C++ compiler: looked for $CXX, c++, g++ and clang++")


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
        except OSError:  # another process was faster, or it is not ours to remove
            continue


def _first_error(output: str) -> str:
    lines = [line.strip() for line in output.splitlines() if line.strip()]
    return next((line for line in lines if "error" in line.lower()), lines[-1] if lines else "it says nothing")


def _with_headers(source: Path) -> list[Path]:
    """The source and all files that it includes in double quotes, in the order of their first mention."""
    found = [source]
    for path in found:  # grows as it is read
        for name in INCLUDE.findall(path.read_bytes()):
            places = (folder / name.decode() for folder in (path.parent, source.parent, HEADERS))
            header = next((place.resolve() for place in places if place.is_file()), None)
            if header is not None and header not in found:
                found.append(header)
    return found


@cache
def _compiler_identity(compiler: tuple[str, ...]) -> str:
    """Where the compiler is and what it calls itself."""
    path = shutil.which(compiler[0])
    if path is None:
        raise NativeUnavailable(f"no compiler: {compiler[0]} is not there")
    try:
        version = subprocess.run([*compiler, "--version"], capture_output=True, text=True, errors="replace", timeout=60)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise NativeUnavailable(f"{compiler[0]} does not run: {error}") from None
    return "\0".join([str(Path(path).resolve()), *compiler, version.stdout])
