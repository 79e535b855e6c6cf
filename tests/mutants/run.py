"""Do the tests see what goes wrong? Every mutant of `catalogue.py`, one at a time, has to turn its tests red.

    python tests/mutants/run.py [--jobs 2] [--root DIR] [WORD ...]

A mutant is made in a copy of the project, never in the project itself, and its tests run up to the first that fails.
It is red when a test failed; tests that cannot be collected, or that hang, are errors of the list. Once, the same tests
run without a mutant, and have to pass. Kernels are compiled into a cache of their own. Exit code: 0 all red, 1 not.
"""

from __future__ import annotations

import argparse
import multiprocessing
import os
import queue
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor, as_completed
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE.parent)]  # as pyproject.toml has it for pytest: this is a command too

from mutants.catalogue import MUTANTS, Mutant  # noqa: E402

# Tests run in processes forked from one that has imported what takes long, and nothing of the project.
PROCESSES = multiprocessing.get_context("forkserver")
PROCESSES.set_forkserver_preload(["hypothesis", "polars", "pytest", "scipy.stats", "torch._dynamo", "torch"])
TIME_LIMIT = 900.0  # seconds for the tests of one mutant
LEFT_OUT = (".git", ".venv", "results", ".snakemake", "__pycache__", ".*_cache", ".hypothesis", "*.egg-info")
RED, SURVIVED = "red", "SURVIVED"
PYTEST = 100  # is added to pytest's exit codes: 1 is also what a process ends with that did not come so far
FOUND = {PYTEST: SURVIVED, PYTEST + 1: RED}  # any other is an error


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


def run_tests(folder: Path, cache: Path, tests: list[str], log: Path) -> None:
    """pytest on the copy of the project in `folder`, in this process, which ends with its exit code and PYTEST."""
    descriptor = os.open(log, os.O_WRONLY | os.O_TRUNC | os.O_CREAT)
    os.dup2(descriptor, 1)
    os.dup2(descriptor, 2)
    os.chdir(folder)
    sys.path[:0] = paths = [str(folder), str(folder / "kernels"), str(HERE)]
    sys.dont_write_bytecode = True
    os.environ |= {"PYTHONPATH": os.pathsep.join(paths), "SSM_KERNELS_CACHE": str(cache), "OMP_NUM_THREADS": "1"}
    import pytest

    options = ["-x", "--tb=line", "--hypothesis-seed=0", "-p", "no_shrinking", "-p", "no:cacheprovider"]
    sys.exit(PYTEST + pytest.main([*options, *(f"tests/{test}" for test in tests)]))


class Copy:
    """A copy of the project in which one thing at a time is wrong."""

    def __init__(self, root: Path, folder: Path, cache: Path):
        self.folder, self.cache = folder, cache
        shutil.copytree(root, folder, ignore=shutil.ignore_patterns(*LEFT_OUT), symlinks=True)
        # Byte code that is checked against its source's content: a fault may come in the same second and size.
        compiling = [sys.executable, "-m", "compileall", "-q", "--invalidation-mode", "checked-hash", "ssm", "kernels"]
        subprocess.run(compiling, cwd=folder, check=True)

    def tests(self, tests: Iterable[str]) -> tuple[int | None, str]:
        """The exit code of `run_tests`, None if it ran past its time, and what was printed."""
        log = self.folder.with_suffix(".log")
        process = PROCESSES.Process(target=run_tests, args=(self.folder, self.cache, list(tests), log))
        process.start()
        process.join(TIME_LIMIT)
        if process.exitcode is None:
            process.kill()
            process.join()
            return None, ""
        return process.exitcode, log.read_text(encoding="utf-8", errors="replace") if log.exists() else ""

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
    if word in ("ERROR", "NOT GREEN"):
        tail = "ran past its time" if code is None else "\n".join(said.strip().splitlines()[-8:])
        line += f"\n{tail}"
    return good, line


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("words", nargs="*", metavar="WORD", help="only mutants whose file or fault has one of these")
    parser.add_argument("--jobs", type=int, default=len(os.sched_getaffinity(0)), help="mutants at a time: the cores")
    parser.add_argument("--root", type=Path, default=HERE.parents[1], help="the project, whose tests are asked")
    args = parser.parse_args()
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
    lost = []
    with tempfile.TemporaryDirectory(prefix="mutants-") as name, ThreadPoolExecutor(args.jobs) as pool:
        folder, copies = Path(name), queue.SimpleQueue[Copy]()
        cache = warm_cache(folder / "cache")
        for number in range(args.jobs):
            copies.put(Copy(args.root, folder / str(number), cache))
        started = [pool.submit(judged, mutant, wanted, copies) for mutant in (*wanted, None)]
        for future in as_completed(started):
            good, line = future.result()
            print(line, flush=True)
            if not good:
                lost.append(line)
    print(f"\n{len(wanted)} mutants, {len(lost)} lines to mend" + "".join(f"\n{line}" for line in lost))
    return 1 if lost else 0


if __name__ == "__main__":
    sys.exit(main())
