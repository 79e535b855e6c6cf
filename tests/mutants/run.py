"""Mutation testing: do the tests of a module detect small faults?

    python tests/mutants/run.py [MODULE ...]

For every module in modules.toml, mutmut makes mutants in a copy of the project, and runs the module's tests. The script
prints how many mutants were killed and survived, the score, and the survivors with their lines. A mutant that no test
reaches has survived. mutmut skips code outside functions, and functions with a decorator other than staticmethod and
classmethod.

Exit code: 0 if all scores are high enough. 1 if a score is below its bound, or if mutmut failed, for example because a
test fails without a mutant. 2 if there is no such module.
"""

from __future__ import annotations

import argparse
import ast
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
import tomllib
from pathlib import Path
from typing import NamedTuple

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
LEFT_OUT = (".*", "results", "__pycache__", "*.egg-info")
SOURCES = {"ssm": "ssm", "kernels": "src"}  # folder -> its name in the copy: mutmut takes packages from . and src
KILLED = ("killed", "timeout", "segfault")
SPINNER = "⠋⠙⠹⠸⠼⠴⠦⠧⠇⠏"  # mutmut's, at the beginning of a line


class Module(NamedTuple):
    """A table of modules.toml, which explains the fields."""

    file: str
    tests: list[str]
    digits: str
    bound: int


MODULES = {name: Module(**table) for name, table in tomllib.loads((HERE / "modules.toml").read_text()).items()}


def copy_project(folder: Path, module: Module) -> None:
    """A copy of the project in `folder`, set up for mutmut to mutate one module."""
    shutil.copytree(ROOT, folder, ignore=shutil.ignore_patterns(*LEFT_OUT), symlinks=True)
    (folder / "kernels").rename(folder / SOURCES["kernels"])
    top, _, rest = module.file.partition("/")
    settings = {
        "source_paths": list(SOURCES.values()),
        "only_mutate": [f"{SOURCES[top]}/{rest}"],
        "also_copy": [path.name for path in folder.iterdir() if path.name not in SOURCES.values()],
        "pytest_add_cli_args": ["--hypothesis-seed=0", "-p", "no:cacheprovider"],
        "pytest_add_cli_args_test_selection": module.tests,
        "do_not_mutate_patterns": [r"raise \w+"],  # tests do not compare the words of errors
        "process_isolation": "forkserver",  # a process that has computed with torch cannot be forked
    }
    with (folder / "pyproject.toml").open("a") as file:
        file.write("\n[tool.mutmut]\n" + "".join(f"{key} = {json.dumps(value)}\n" for key, value in settings.items()))
    # Python remembers which folders of its path were not there when it started.
    (folder / "mutants" / SOURCES["kernels"]).mkdir(parents=True)


def mutmut(folder: Path, *words: str) -> str:
    """The output of a command of mutmut.

    Raises:
        RuntimeError: it failed. The message has the end of its output.
    """
    paths = [str(folder / "mutants"), str(folder / "mutants" / SOURCES["kernels"])]
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(paths), "OMP_NUM_THREADS": "1"}
    command = [str(Path(sys.executable).with_name("mutmut")), *words]
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True)
    if done.returncode:
        lines = f"{done.stdout}\n{done.stderr}".splitlines()
        raise RuntimeError("\n".join([line for line in lines if line.strip() and line[0] not in SPINNER][-40:]))
    return done.stdout


def place(folder: Path, module: Module, mutant: str) -> str:
    """The place of a mutant, and its change: `file:line: text -> text of the mutant`."""
    _, _, hunk, *diff = mutmut(folder, "show", mutant).partition("\n")[2].splitlines()
    number = next(number for number, line in enumerate(diff) if line.startswith("-"))
    before, after = diff[number][1:].strip(), " ".join(line[1:].strip() for line in diff if line.startswith("+"))
    # mutmut's names: x_function__mutmut_3 and xǁClassǁmethod__mutmut_3
    names = mutant.rpartition(".")[2].partition("__mutmut_")[0].removeprefix("x_").split("ǁ")[-2:]
    text = (ROOT / module.file).read_text(encoding="utf-8")
    node: ast.AST = ast.parse(text)
    for name in names:
        node = next(n for n in ast.walk(node) if isinstance(n, ast.ClassDef | ast.FunctionDef) and n.name == name)
    assert isinstance(node, ast.FunctionDef)
    guess = node.lineno + int(re.findall(r"\d+", hunk)[0]) + number - 1  # mutmut may count a decorator or a comment too
    same = [line for line, words in enumerate(text.splitlines(), 1) if words.strip() == before]
    return f"{module.file}:{min(same, key=lambda line: abs(line - guess), default=guess)}: {before}  ->  {after}"


def score(name: str, module: Module, cores: int) -> float:
    """The share of a module's mutants that its tests kill, in percent. Prints it with the survivors.

    Raises:
        RuntimeError: mutmut failed.
    """
    started = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="mutants-", ignore_cleanup_errors=True) as temporary:
        folder = Path(temporary) / "project"
        copy_project(folder, module)
        mutmut(folder, "run", "--max-children", str(cores), f"*__mutmut_*[{module.digits}]")
        lines = mutmut(folder, "results", "--all", "True").splitlines()
        outcomes = dict(line.strip().rsplit(": ", 1) for line in lines if line.strip())
        outcomes = {mutant: word for mutant, word in outcomes.items() if word != "not checked"}
        if not outcomes:
            raise RuntimeError(f"{module.file}: no mutant's number ends in one of {module.digits}")
        survivors = [mutant for mutant, word in outcomes.items() if word not in KILLED]
        percent = 100 * (1 - len(survivors) / len(outcomes))
        print(
            f"{name}: {len(outcomes) - len(survivors)} killed, {len(survivors)} survived, score {percent:.0f}% "
            f"(at least {module.bound}%), {time.monotonic() - started:.0f} s",
            flush=True,
        )
        for mutant in survivors:
            print(f"  {outcomes[mutant]}: {place(folder, module, mutant)}", flush=True)
    return percent


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("modules", nargs="*", metavar="MODULE", help=f"one of {', '.join(MODULES)}; default: all")
    parser.add_argument(
        "--jobs",
        type=int,
        default=len(os.sched_getaffinity(0)),
        help="number of mutants at a time (default: one per core)",
    )
    args = parser.parse_args()
    wrong = []
    if unknown := [name for name in args.modules if name not in MODULES]:
        parser.error(f"no module {', '.join(unknown)}; choose from {', '.join(MODULES)}")
    for name in args.modules or MODULES:
        try:
            if score(name, MODULES[name], args.jobs) < MODULES[name].bound:
                wrong.append(f"{name}: the score is below its bound")
        except RuntimeError as error:
            print(error, file=sys.stderr)
            wrong.append(f"{name}: mutmut failed; are its tests green? pytest {' '.join(MODULES[name].tests)}")
    print("\n".join(wrong), file=sys.stderr, end="\n" if wrong else "")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
