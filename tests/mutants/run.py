"""Do the tests see what goes wrong? Every mutant of `catalogue`, one at a time, has to turn its tests red.

    python tests/mutants/run.py [--jobs 2] [--root DIR] [WORD ...]

A mutant is made in a copy of the project, never in the project itself, and its tests run up to the first that fails.
It is red when a test failed: which one, and why, follows. Tests that hang are errors of the list. Before all, every
test that the list names has to be among those of `make test`. Once, the same tests run without a mutant, and have to
pass. Kernels are compiled into a cache of their own. Exit code: 0 all red, 1 not.
"""

from __future__ import annotations

import argparse
import difflib
import json
import multiprocessing
import os
import queue
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor, as_completed
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE.parent)]  # as pyproject.toml has it for pytest: this is a command too

from mutants.catalogue import MUTANTS, Mutant  # noqa: E402

# Tests run in processes forked from one that has imported what takes long, and nothing of the project.
PROCESSES = multiprocessing.get_context("forkserver")
PRELOADED = ["hypothesis", "polars", "pytest", "scipy.stats", "torch._dynamo", "torch"]
TIME_LIMIT = 900.0  # seconds for the tests of one mutant
LEFT_OUT = (".git", ".venv", "results", ".snakemake", "__pycache__", ".*_cache", ".hypothesis", "*.egg-info")
RED, SURVIVED = "red", "SURVIVED"
PYTEST = 100  # is added to pytest's exit codes: 1 is also what a process ends with that did not come so far
FOUND = {PYTEST: SURVIVED, PYTEST + 1: RED}  # any other is an error
REASON = re.compile(r"^(?:E +)?\S+:\d+: (.{1,90})", re.MULTILINE)  # of a failure, as --tb=line has it
FAILED = re.compile(r"^(?:FAILED|ERROR) tests/(.+?)(?: - |$)", re.MULTILINE)  # in pytest's summary


def mutated(root: Path, mutant: Mutant) -> str:
    """The mutant's file with its fault.

    Raises:
        ValueError: the file is gone, or the mutant's text does not stand there exactly once.
    """
    path = root / mutant.file
    if not path.is_file():
        raise ValueError(f"{mutant.file}: no such file ({mutant.breaks})")
    text = path.read_text(encoding="utf-8")
    if text.count(mutant.old) != 1:
        raise ValueError(f"{mutant.file}: {mutant.old!r} stands there {text.count(mutant.old)} times ({mutant.breaks})")
    return text.replace(mutant.old, mutant.new)


class Collected:
    """A plugin of pytest that writes the names of the tests that would run, as JSON."""

    def __init__(self, path: Path):
        self.path = path

    def pytest_collection_finish(self, session: Any) -> None:
        self.path.write_text(json.dumps([item.nodeid.removeprefix("tests/") for item in session.items]))


def run_tests(folder: Path, cache: Path, tests: list[str], log: Path, collected: Path | None = None) -> None:
    """pytest on the copy of the project in `folder`, in this process, which ends with its exit code and PYTEST.

    With a file for their names, the tests are collected and do not run.
    """
    descriptor = os.open(log, os.O_WRONLY | os.O_TRUNC | os.O_CREAT)
    os.dup2(descriptor, 1)
    os.dup2(descriptor, 2)
    os.chdir(folder)
    sys.path[:0] = paths = [str(folder), str(folder / "kernels"), str(HERE)]
    sys.dont_write_bytecode = True
    os.environ |= {"PYTHONPATH": os.pathsep.join(paths), "SSM_KERNELS_CACHE": str(cache), "OMP_NUM_THREADS": "1"}
    import pytest

    options = ["-x", "--tb=line", "--hypothesis-seed=0", "-p", "no_shrinking", "-p", "no:cacheprovider"]
    plugins: list[object] = []
    if collected is not None:
        options, plugins = ["--collect-only", "-q", "-p", "no:cacheprovider"], [Collected(collected)]
    sys.exit(PYTEST + pytest.main([*options, *(f"tests/{test}" for test in tests)], plugins))


def chosen(test: str, names: Iterable[str]) -> list[str]:
    """Those of pytest's `names` that an entry of the list means; none if there is no such test."""
    path, _, words = test.removesuffix("]").partition("[")
    if not words:
        return [test] if any(name == test or name.startswith((f"{test}::", f"{test}[")) for name in names) else []
    of_it = [name for name in names if name.partition("[")[0] == path]
    return [name for name in of_it if set(words.split("-")) <= set(name.removesuffix("]").partition("[")[2].split("-"))]


class Copy:
    """A copy of the project in which one thing at a time is wrong."""

    def __init__(self, root: Path, folder: Path, cache: Path):
        self.folder, self.cache = folder, cache
        shutil.copytree(root, folder, ignore=shutil.ignore_patterns(*LEFT_OUT), symlinks=True)
        # Byte code that is checked against its source's content: a fault may come in the same second and size.
        compiling = [sys.executable, "-m", "compileall", "-q", "--invalidation-mode", "checked-hash", "ssm", "kernels"]
        subprocess.run(compiling, cwd=folder, check=True)

    def tests(self, tests: Iterable[str], collected: Path | None = None) -> tuple[int | None, str]:
        """The exit code of `run_tests`, None if it ran past its time, and what was printed."""
        log = self.folder.with_suffix(".log")
        process = PROCESSES.Process(target=run_tests, args=(self.folder, self.cache, list(tests), log, collected))
        process.start()
        process.join(TIME_LIMIT)
        if process.exitcode is None:
            process.kill()
            process.join()
            return None, ""
        return process.exitcode, log.read_text(encoding="utf-8", errors="replace") if log.exists() else ""

    def names(self, files: Iterable[str]) -> list[str]:
        """The tests of these files that run by default, as pytest names them.

        Raises:
            ValueError: a file cannot be collected.
        """
        collected = self.folder.with_suffix(".json")
        code, said = self.tests(files, collected)
        if code != PYTEST:
            raise ValueError("the tests cannot be collected\n" + last_lines(code, said))
        names: list[str] = json.loads(collected.read_text())
        return names

    def with_fault(self, mutant: Mutant) -> tuple[int | None, str]:
        """The same for the mutant's tests; the copy is whole again afterwards."""
        path = self.folder / mutant.file
        whole = path.read_text(encoding="utf-8")
        path.write_text(mutated(self.folder, mutant), encoding="utf-8")
        try:
            return self.tests(mutant.tests)
        finally:
            path.write_text(whole, encoding="utf-8")


def warm_cache(folder: Path) -> Path:
    """A copy of this user's cache of compiled kernels."""
    from ssm_kernels.native import cache_folder

    shutil.copytree(cache_folder(), folder)
    folder.chmod(0o700)
    return folder


def last_lines(code: int | None, said: str) -> str:
    return "ran past its time" if code is None else "\n".join(said.strip().splitlines()[-8:])


def as_collected(wanted: list[Mutant], copy: Copy) -> list[Mutant]:
    """The mutants with their tests as pytest names them.

    Raises:
        ValueError: tests of the list are not among those that run by default, one line for each.
    """
    listed = list(dict.fromkeys(test for mutant in wanted for test in mutant.tests))
    there = [test for test in listed if (copy.folder / "tests" / test.partition("::")[0]).is_file()]
    names = copy.names(dict.fromkeys(test.partition("::")[0] for test in there))
    ids = {test: chosen(test, names) for test in listed}
    functions = dict.fromkeys(name.partition("[")[0] for name in names)
    problems = []
    for test in (test for test in listed if not ids[test]):
        close = difflib.get_close_matches(test, functions, n=1)
        hint = f"; did you mean {close[0]}?" if close and close[0] != test.partition("[")[0] else ""
        problems.append(f"{test}: no such test, or none that runs by default{hint}")
    if problems:
        raise ValueError("\n".join(problems))
    return [mutant._replace(tests=tuple(name for test in mutant.tests for name in ids[test])) for mutant in wanted]


def judged(mutant: Mutant | None, wanted: list[Mutant], copies: queue.SimpleQueue[Copy]) -> tuple[bool, str]:
    """Whether all is well with a mutant, or without one, and a line that says so."""
    copy, started = copies.get(), time.monotonic()
    try:
        if mutant is None:
            code, said = copy.tests(dict.fromkeys(test for one in wanted for test in one.tests))
            good = code == PYTEST
            word = "green" if good else "NOT GREEN"
        else:
            code, said = copy.with_fault(mutant)
            word = FOUND.get(code or 0, "ERROR")
            good = word == RED
    finally:
        copies.put(copy)
    name = "all of their tests, without a mutant" if mutant is None else f"{mutant.file}: {mutant.breaks}"
    line = f"{word:9} {time.monotonic() - started:5.0f} s  {name}"
    if word == RED:
        line += f"  ({', '.join(FAILED.findall(said))}: {', '.join(REASON.findall(said))})"
    if word in ("ERROR", "NOT GREEN"):
        line += f"\n{last_lines(code, said)}"
    return good, line


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("words", nargs="*", metavar="WORD", help="only mutants whose file or fault has one of these")
    parser.add_argument("--jobs", type=int, default=len(os.sched_getaffinity(0)), help="mutants at a time: the cores")
    parser.add_argument("--root", type=Path, default=HERE.parents[1], help="the project, whose tests are asked")
    args = parser.parse_args()
    PROCESSES.set_forkserver_preload(PRELOADED)  # not before: a process has one such parent, tests of this file too
    wanted = [m for m in MUTANTS if not args.words or any(word in f"{m.file}: {m.breaks}" for word in args.words)]
    problems = []
    for mutant in wanted:
        try:
            mutated(args.root, mutant)
        except ValueError as error:
            problems.append(str(error))
    if problems or not wanted:
        print("\n".join(problems) or "no such mutant", file=sys.stderr)
        return 1
    started_at, lost = time.monotonic(), []
    with tempfile.TemporaryDirectory(prefix="mutants-") as name, ThreadPoolExecutor(args.jobs) as pool:
        folder, copies = Path(name), queue.SimpleQueue[Copy]()
        cache = warm_cache(folder / "cache")
        all_copies = [Copy(args.root, folder / str(number), cache) for number in range(args.jobs)]
        for copy in all_copies:
            copies.put(copy)
        try:
            wanted = as_collected(wanted, all_copies[0])
        except ValueError as error:
            print(error, file=sys.stderr)
            return 1
        started = [pool.submit(judged, mutant, wanted, copies) for mutant in (*wanted, None)]
        for future in as_completed(started):
            good, line = future.result()
            print(line, flush=True)
            if not good:
                lost.append(line)
    minutes = (time.monotonic() - started_at) / 60
    mending = "".join(f"\n{line}" for line in lost)
    print(f"\n{len(wanted)} mutants in {minutes:.0f} minutes, {len(lost)} lines to mend{mending}")
    return 1 if lost else 0


if __name__ == "__main__":
    sys.exit(main())
