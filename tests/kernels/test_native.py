"""Compilation at first use: the cache, its permissions, failing or missing compilers, and the functions of simd.h."""

from __future__ import annotations

import ctypes
import os
import select
import stat
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from kernels.builds import Build
from kernels.simd_functions import check_extremes, check_precision, check_sums, write_functions
from ssm_kernels import backends, gated_rms_norm, native
from ssm_kernels.gated_rms_norm.cpp import SOURCE as NORM
from ssm_kernels.native import (
    InstructionsError,
    NativeUnavailable,
    build,
    cache_folder,
    cpu,
    find_compiler,
    instruction_sets,
    load,
)
from ssm_kernels.native.cpu import VARIABLE
from torch import Tensor

FLAGS = ["-std=c++17", "-shared", "-fPIC"]
SOURCE = '#include "answer.h"\nextern "C" int answer() { return ANSWER; }\n'


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """An empty cache folder. The process forgets its loaded libraries."""
    folder = tmp_path / "cache"
    monkeypatch.setenv("SSM_KERNELS_CACHE", str(folder))
    memories = (native._load, native._openmp_flags)
    for memory in memories:
        memory.cache_clear()
    yield folder
    for memory in memories:
        memory.cache_clear()


@pytest.fixture
def source(tmp_path: Path) -> Path:
    (tmp_path / "answer.h").write_text("#define ANSWER 42\n")
    file = tmp_path / "answer.cpp"
    file.write_text(SOURCE)
    return file


def script(path: Path, lines: str) -> list[str]:
    """A shell script that is used as a compiler."""
    path.write_text(f"#!/bin/sh\n{lines}\n")
    path.chmod(0o700)
    return [str(path)]


def counting_compiler(tmp_path: Path) -> tuple[list[str], Callable[[], int]]:
    """The system's compiler, and a function that counts its compilations."""
    log, real = tmp_path / "calls", " ".join(find_compiler())
    command = script(tmp_path / "counting", f'[ "$1" = --version ] || echo . >> {log}\nexec {real} "$@"')
    return command, lambda: len(log.read_text().split()) if log.exists() else 0


def answer(library: Path) -> int:
    return int(ctypes.CDLL(str(library)).answer())


def test_compiles_once(cache: Path, source: Path, tmp_path: Path) -> None:
    compiler, calls = counting_compiler(tmp_path)
    first = build(source, compiler, FLAGS)
    assert (build(source, compiler, FLAGS), calls()) == (first, 1)
    assert answer(first) == 42
    assert list(cache.iterdir()) == [first]


def test_compiles_again_for_other_flags_compilers_and_sources(cache: Path, source: Path, tmp_path: Path) -> None:
    compiler, calls = counting_compiler(tmp_path)
    libraries = {build(source, compiler, FLAGS)}
    libraries.add(build(source, compiler, [*FLAGS, "-O1"]))
    libraries.add(build(source, compiler, FLAGS, target="another processor"))
    libraries.add(build(source, find_compiler(), FLAGS))
    (tmp_path / "answer.h").write_text("#define ANSWER 43\n")
    changed = build(source, compiler, FLAGS)
    assert answer(changed) == 43
    source.write_text(SOURCE + "// and more\n")
    libraries |= {changed, build(source, compiler, FLAGS)}
    assert len(libraries) == 6
    assert calls() == 5


def test_the_cache_is_private(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert cache_folder() == cache.resolve()
    assert stat.S_IMODE(cache.stat().st_mode) == 0o700
    for mode in (0o770, 0o707):
        cache.chmod(mode)
        with pytest.raises(NativeUnavailable, match="others can write to the cache folder"):
            cache_folder()
    cache.chmod(0o755)
    assert cache_folder() == cache.resolve()
    cache.parent.chmod(0o777)
    with pytest.raises(NativeUnavailable, match="others can replace the cache folder"):
        cache_folder()
    cache.parent.chmod(0o1777)  # like /tmp
    assert cache_folder() == cache.resolve()
    monkeypatch.setattr(os, "getuid", lambda: cache.stat().st_uid + 1)
    with pytest.raises(NativeUnavailable, match="belongs to another user"):
        cache_folder()


def test_the_cache_is_in_the_users_cache_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("SSM_KERNELS_CACHE", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "xdg"))
    assert cache_folder() == (tmp_path / "xdg" / "ssm_kernels").resolve()
    monkeypatch.delenv("XDG_CACHE_HOME")
    monkeypatch.setenv("HOME", str(tmp_path))
    assert cache_folder() == (tmp_path / ".cache" / "ssm_kernels").resolve()


def test_error_of_a_cache_that_cannot_be_created(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setenv("SSM_KERNELS_CACHE", str(tmp_path / "file" / "cache"))
    with pytest.raises(NativeUnavailable, match="SSM_KERNELS_CACHE"):
        cache_folder()


def test_a_failed_compilation_gives_one_line_and_leaves_no_file(cache: Path, source: Path) -> None:
    source.write_text("int good;\nint bad = nothing_of_this_name;\n")
    with pytest.raises(NativeUnavailable, match=r"cannot compile answer.cpp: .*error.*nothing_of_this_name") as caught:
        build(source, find_compiler(), FLAGS)
    assert "\n" not in str(caught.value)
    assert list(cache.iterdir()) == []


@pytest.mark.parametrize("end", ["exit 3", "kill -9 $$"])
def test_a_killed_compiler_leaves_no_file(cache: Path, source: Path, tmp_path: Path, end: str) -> None:
    write = 'for last; do :; done; while [ "$1" != -o ]; do shift; done; echo half > "$2"'
    dying = script(tmp_path / "dying", f'[ "$1" = --version ] && exit 0\n{write}\n{end}')
    with pytest.raises(NativeUnavailable, match=r"cannot compile answer.cpp"):
        build(source, dying, FLAGS)
    assert list(cache.iterdir()) == []


def test_two_processes_build_at_once(cache: Path, source: Path, tmp_path: Path) -> None:
    """One process builds, loads and ends while the other one is writing its library. Both load a complete library."""
    real, half, go = " ".join(find_compiler()), tmp_path / "half", tmp_path / "go"
    os.mkfifo(half)
    os.mkfifo(go)
    receive, send = os.open(half, os.O_RDONLY | os.O_NONBLOCK), os.open(go, os.O_RDWR)
    write = 'for last; do :; done; for x; do [ "$before" = -o ] && out="$x"; before="$x"; done; echo half > "$out"'
    wait = f'[ -n "$SLOW" ] && {{ echo "$out" > {half}; read line < {go}; }}'  # waits for the test
    compiler = script(tmp_path / "halting", f'[ "$1" = --version ] && exit 0\n{write}\n{wait}\nexec {real} "$@"')
    code = (
        "import ctypes; from pathlib import Path; from ssm_kernels.native import build\n"
        f"library = build(Path({str(source)!r}), {compiler!r}, {FLAGS!r})\n"
        "print(ctypes.CDLL(str(library)).answer(), library)"
    )
    environment = os.environ | {"PYTHONPATH": str(Path(native.__file__).parents[2])}
    command = [sys.executable, "-c", code]
    with subprocess.Popen(command, env=environment | {"SLOW": "1"}, stdout=subprocess.PIPE, text=True) as slow:
        assert select.select([receive], [], [], 300)[0]  # until the unfinished file exists
        unfinished = Path(os.read(receive, 4096).decode().strip())
        assert unfinished.read_text() == "half\n"
        quick = subprocess.run(command, env=environment, stdout=subprocess.PIPE, text=True, timeout=300)
        assert unfinished.read_text() == "half\n"
        (library,) = set(cache.iterdir()) - {unfinished}
        os.write(send, b"on\n")
        outputs = (quick.stdout, slow.communicate(timeout=300)[0])
    assert outputs == (f"42 {library}\n",) * 2
    assert list(cache.iterdir()) == [library]
    for pipe in (receive, send):
        os.close(pipe)


def test_old_files_of_killed_builds_are_removed(cache: Path, source: Path) -> None:
    old, new, other = (cache_folder() / name for name in (".answer-0-old.so", ".answer-0-new.so", "kept-0.so"))
    for file in (old, new, other):
        file.touch()
    for file in (old, other):
        os.utime(file, (time.time() - 90_000,) * 2)
    library = build(source, find_compiler(), FLAGS)
    assert set(cache.iterdir()) == {new, other, library}


def test_errors_without_a_compiler(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "")
    monkeypatch.delenv("CXX", raising=False)
    reason = "no C++ compiler: searched for $CXX, c++, g++ and clang++"
    assert native.why_not("selective_scan/selective_scan.cpp") == reason
    with pytest.raises(NativeUnavailable, match="no C"):
        load("selective_scan/selective_scan.cpp")
    monkeypatch.setenv("CXX", "no-such-compiler -O2")
    with pytest.raises(NativeUnavailable, match="CXX names no-such-compiler"):
        find_compiler()


def test_without_openmp_it_runs_in_one_thread_and_logs_this_once(
    cache: Path, source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    real = " ".join(find_compiler())
    refuses = 'for x; do [ "$x" = -fopenmp ] && { echo "error: no OpenMP" >&2; exit 1; }; done'
    monkeypatch.setenv("CXX", script(tmp_path / "simple", f'{refuses}\nexec {real} "$@"')[0])
    assert load(str(source)).answer() == 42
    monkeypatch.setenv(VARIABLE, "plain")
    assert load(str(source)).answer() == 42
    (line,) = [record.getMessage() for record in caplog.records]
    assert line.startswith("C++ runs in one thread, without OpenMP: ")
    assert "no OpenMP" in line


def test_error_of_a_library_that_does_not_load(tmp_path: Path) -> None:
    (tmp_path / "broken.so").write_text("not a library")
    with pytest.raises(NativeUnavailable, match=r"cannot load .*broken\.so"):
        native.open_library(tmp_path / "broken.so")


def test_the_environment_chooses_the_instruction_set(
    cache: Path, source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The default is the best instruction set of the processor. Each set has its own library."""
    source.write_text('#include "simd.h"\nextern "C" int answer() { return simd::bytes; }\n')
    monkeypatch.delenv(VARIABLE, raising=False)
    bytes_of = {"avx512": 64, "avx2": 32, "plain": 16}
    assert load(str(source)).answer() == bytes_of[instruction_sets()[0]]
    for name in (*instruction_sets(), *instruction_sets()):
        monkeypatch.setenv(VARIABLE, name)
        assert load(str(source)).answer() == bytes_of[name]
    assert len(list(cache.glob("answer-*.so"))) == len(instruction_sets())


def test_the_environment_chooses_the_compiler(
    cache: Path, source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert load(str(source)).answer() == 42
    real = " ".join(find_compiler())
    monkeypatch.setenv("CXX", script(tmp_path / "other", f'exec {real} -DOTHER "$@"')[0])
    (tmp_path / "answer.h").write_text("#ifdef OTHER\n#define ANSWER 43\n#else\n#define ANSWER 42\n#endif\n")
    assert load(str(source)).answer() == 43


@pytest.mark.parametrize(
    ("name", "problem"),
    [
        ("avx1024", "unknown instruction set 'avx1024', expected avx512, avx2, plain; did you mean 'avx512'?"),
        ("AVX-2", "unknown instruction set 'AVX-2', expected avx512, avx2, plain; did you mean 'avx2'?"),
        ("neon\n" + 90 * "x", "unknown instruction set 'neon\\n" + 35 * "x" + "', expected avx512, avx2, plain"),
        ("avx2", "this processor has no avx2; the best that it has is plain"),
    ],
)
@pytest.mark.parametrize("backend", ["auto", "cpp"])
def test_error_of_an_unavailable_instruction_set(
    name: str, problem: str, backend: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One line, and no other backend runs instead."""
    monkeypatch.setattr(cpu, "instruction_sets", lambda: ("plain",))
    monkeypatch.setattr(backends, "_chosen", {})
    monkeypatch.setenv(VARIABLE, name)
    with pytest.raises(InstructionsError) as caught:
        gated_rms_norm(torch.ones(3), torch.ones(3), backend=backend)
    assert str(caught.value) == f"SSM_KERNELS_INSTRUCTIONS: {problem}"


def test_a_number_of_any_type_can_come_first(monkeypatch: pytest.MonkeyPatch) -> None:
    """The C types of a function's arguments are fixed by its first call."""
    norm = native.load(NORM).gated_rms_norm_forward_f32
    monkeypatch.setattr(norm, "argtypes", None)
    x, weight = torch.tensor([[3.0, 4.0]]), torch.ones(2)
    for eps in (1, 0.5):
        expected = gated_rms_norm(x, weight, eps=eps, backend="reference")
        assert torch.allclose(gated_rms_norm(x, weight, eps=eps, backend="cpp"), expected)


class Functions:
    """A library whose functions take tensors and integers."""

    def __init__(self, library: ctypes.CDLL) -> None:
        self._library = library

    def __getattr__(self, name: str) -> Callable[..., int]:
        function = getattr(self._library, name)
        return lambda *arguments: function(*(_in_c(x) for x in arguments))


def _in_c(x: Tensor | int) -> Any:
    return ctypes.c_void_p(x.data_ptr()) if isinstance(x, Tensor) else ctypes.c_int64(x)


@pytest.fixture(scope="module")
def functions_source(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_functions(tmp_path_factory.mktemp("simd"))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_functions_of_vectors(functions_source: Path, build: Build, dtype: torch.dtype) -> None:
    functions = Functions(load(str(functions_source)))
    check_precision(functions, dtype)
    check_extremes(functions, dtype)
    for count in (1, 7, 16, 37):
        check_sums(functions, dtype, count)
