"""Thousands of damaged and hostile inputs: none may give a traceback, a hang, many lines or a wrong result.

    python tests/fuzz/fuzz.py --minutes 10 --seed 3

Each case changes one good input, and calls the command line in this process. The call must be refused with one line, or
succeed. After a change of the numbers of a table or of weights, a successful call must give the result of the good
input. No call may change an input. A case depends only on (seed, number): `--only NUMBER` repeats one.
"""

from __future__ import annotations

import argparse
import contextlib
import random
import resource
import sys
import tempfile
import time
import traceback
from collections import Counter
from pathlib import Path

if __name__ == "__main__":  # replaces this folder, whose fuzz.py would hide the package `fuzz`
    sys.path[0] = str(Path(__file__).parents[1])

import transformers.models.auto.modeling_auto  # noqa: F401 (takes seconds, which no case should wait for)
from fuzz.changes import changed, words_changed
from fuzz.world import LIMIT, Hang, Target, World, build, call

MEMORY = 24 * 2**30  # bytes of address space, so that a request for a petabyte fails


def state(folder: Path) -> dict[str, tuple[int, int]]:
    """The size and modification time of every file below a folder."""
    return {str(path): (path.stat().st_size, path.stat().st_mtime_ns) for path in folder.rglob("*") if path.is_file()}


def case(world: World, seed: int, number: int, limit: float = LIMIT) -> tuple[str, str, str]:
    """Run one case. Returns its kind, its end ("fine", "refused" or a problem), and details."""
    rng = random.Random(f"{seed}/{number}")
    kinds = sorted({target.kind for target in world.targets})
    kind = rng.choice(kinds)
    target = rng.choice([target for target in world.targets if target.kind == kind])
    good = target.file.read_bytes()
    with tempfile.TemporaryDirectory() as name:
        out = Path(name)
        bad = good if kind == "arguments" else changed(target.file, good, rng)
        if bad != good:
            target.file.write_bytes(bad)
        words = target.words(out)  # after the change: some commands copy the input
        if kind == "arguments":
            words = words_changed(words, rng)
        about = f"{target.file.name}: {' '.join(words)[:300]!r}"
        before = state(world.folder)
        try:
            with contextlib.chdir(out):
                code, said = call(words, limit)
            problem = judged(target, world, out, code, said, bad == good or kind == "arguments")
        except Hang:
            code, problem, said = 1, "hang", ""
        except BaseException as error:
            if isinstance(error, KeyboardInterrupt):
                raise
            code, problem, said = 1, "traceback", "".join(traceback.format_exception(error)[-3:])
        finally:
            same = state(world.folder) == before
            if bad != good:
                target.file.write_bytes(good)
        if not same:
            problem = "changed an input"
    return kind, problem or ("fine" if code == 0 else "refused"), f"{about}\n{said}" if problem else said


def judged(target: Target, world: World, out: Path, code: int, said: str, untouched: bool) -> str:
    """The problem with the end of a call; empty if there is none."""
    notes = ("diagnose ", "extend ")  # lines about a model, before an error
    lines = [line for line in said.strip("\n").split("\n") if not line.startswith(notes)]
    if code != 0 and len([line for line in lines if line.strip()]) != 1:
        return "not one line"
    if code != 0 and len(lines[0]) > 2000:
        return "a long line"
    if not said.replace("\n", "").isprintable():
        return "raw control characters"
    if code == 0 and target.exact and not untouched and target.result is not None:
        try:
            found = target.result(out)
        except Exception:
            return "no result"
        if found != world.expected[target.file]:
            return "silently wrong"
    return ""


def main_of_fuzz() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--minutes", type=float, default=5.0)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--cases", type=int, default=10**9, help="the largest number of cases")
    parser.add_argument("--only", type=int, help="run only this case")
    given = parser.parse_args()
    sys.stdout.reconfigure(errors="backslashreplace")  # type: ignore[union-attr]
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
    counts: Counter[tuple[str, str]] = Counter()
    slowest = 0.0
    with tempfile.TemporaryDirectory() as name:
        world = build(Path(name))
        end = time.monotonic() + 60 * given.minutes
        numbers = [given.only] if given.only is not None else range(given.cases)
        for number in numbers:
            if time.monotonic() > end:
                break
            begun = time.monotonic()
            kind, ended, details = case(world, given.seed, number)
            slowest = max(slowest, time.monotonic() - begun)
            counts[kind, ended] += 1
            if ended not in ("fine", "refused") or given.only is not None:
                print(f"case {number} (seed {given.seed}), {kind}: {ended}: {details}", flush=True)
    for kind in sorted({kind for kind, _ in counts}):
        print(f"{kind}: {', '.join(f'{n} {ended}' for (of, ended), n in sorted(counts.items()) if of == kind)}")
    wrong = sum(count for (_, ended), count in counts.items() if ended not in ("fine", "refused"))
    print(f"{sum(counts.values())} cases with seed {given.seed}, the slowest {slowest:.1f} s; {wrong} ended wrongly")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main_of_fuzz())
