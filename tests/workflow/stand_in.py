"""Helpers for tests of the workflow: a folder with a small config, and a stand-in for `ssm` that writes tiny files."""

from __future__ import annotations

import json
import os
import re
import shlex
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from plan.mini import edit, write_config
from workflow.forked import run_snakemake

from ssm.report.papers import PAGES

ROOT = Path(__file__).parents[2]
SNAKEFILE = ["--snakefile", str(ROOT / "workflow" / "Snakefile")]
SNAKEMAKE = [sys.executable, "-m", "snakemake", *SNAKEFILE]
STAND_IN = f"""#!{sys.executable} -S
import pathlib, shlex, sys
verb, *rest = sys.argv[1:]
with open("calls.txt", "a") as calls:
    print(shlex.join([verb, *rest]), file=calls)
assert verb in ("report", "diagnose", "extend") or pathlib.Path(rest[0]).is_file(), "the spec is missing"
if verb == "train":
    tokens, windows = (pathlib.Path(rest[rest.index(name) + 1]) for name in ("--tokens", "--windows"))
    assert (windows / f"{{tokens.name}}.json").is_file(), "the windows are missing"
print(f"{{verb}} progress", file=sys.stderr)
out = pathlib.Path(rest[rest.index("--out") + 1])
spec = pathlib.Path(rest[0])
assert verb != "tokenize" or not (out / "manifest.json").exists(), "ssm would leave a finished store unchanged"
if verb == "tokenize" and pathlib.Path("gate").exists():
    open("gate").read()  # waits until the test closes the FIFO
files = {{
    "tokenize": ["manifest.json"],
    "import": ["run.json", "model.safetensors"],
    "train": ["run.json", "metrics.parquet", "model.safetensors"],
    "diagnose": ["index.html", "diagnosis.json"],
    "extend": ["index.html", "result.json"],
    "plot": [f"{{spec.stem}}.{{end}}" for end in ("svg", "png", "pdf")],
    "report": {list(PAGES)},
}}.get(verb)

def make(out):
    for path in [out / name for name in files] if files else [out]:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(verb)

if verb in ("diagnose", "extend"):
    from ssm.base.files import replacing
    with replacing(out, rest[rest.index("--replace") + 1], files[-1], [*files, "work"]) as new:
        if verb == "extend" and not (new / files[-1]).exists():  # it continues in its folder, like `ssm`
            new.mkdir(parents=True, exist_ok=True)
            (new / "work").open("a").write("begun ")
        if pathlib.Path("kill").exists():
            sys.exit(75)
        if not (new / files[-1]).exists():
            make(new)
        if pathlib.Path("fail").exists():
            sys.exit(3)
else:
    make(out)
    if verb == "judge" and pathlib.Path("fail").exists():
        sys.exit(3)
"""


def make_place(folder: Path) -> Path:
    """Write a small config, a text, and an environment with the stand-in. Results are in the folder `a b`."""
    write_config(folder / "config")
    edit(folder / "config", "config.yaml", "scale: smoke", "scale: smoke\nresults: a b")
    edit(folder / "config", "data.yaml", "{kind: stdlib}", '{kind: files, paths: ["my text"]}')
    (folder / "my text").mkdir()
    (folder / "my text" / "a.txt").write_text("Once upon a time.")
    (folder / "workflow").symlink_to(ROOT / "workflow")
    for name in ("pyproject.toml", "constraints.txt"):
        (folder / name).touch()
    executable(folder / ".venv/bin/python", f'#!/bin/sh\nexec {shlex.quote(sys.executable)} "$@"\n')
    executable(folder / ".venv/bin/snakemake", f'#!/bin/sh\nexec {shlex.join(SNAKEMAKE)} "$@"\n')
    executable(folder / ".venv/bin/ssm", STAND_IN)
    (folder / ".venv/.installed").touch()
    return folder


def executable(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    path.chmod(0o755)


def environment(place: Path) -> dict[str, str]:
    path = f"{place / '.venv/bin'}{os.pathsep}{os.environ['PATH']}"
    inherited = {name: value for name, value in os.environ.items() if not name.startswith("MAKE")}  # set by `make test`
    return inherited | {"PATH": path, "PYTHONPATH": str(ROOT), "HOME": str(place)}


def run(place: Path, *command: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        command, cwd=place, env=environment(place), capture_output=True, text=True, check=False, timeout=100
    )


def snakemake(
    place: Path, *arguments: str, variables: Mapping[str, str] | None = None
) -> subprocess.CompletedProcess[str]:
    """Run the workflow in a forked process. Tests that need another process start SNAKEMAKE."""
    return run_snakemake([*SNAKEFILE, *arguments], place, environment(place) if variables is None else variables)


def make(place: Path, *arguments: str, report: bool = True) -> list[list[str]]:
    """Run the workflow, and return its calls of `ssm`. `report`: whether the run must print the path of its report."""
    (place / "calls.txt").write_text("")
    result = snakemake(place, "--cores", "2", *arguments)
    assert result.returncode == 0, result.stdout + result.stderr
    named = re.findall("^Report: (.*)$", result.stderr, re.MULTILINE)
    assert named == ["a b/smoke/report/index.html"] * report
    return [shlex.split(call) for call in (place / "calls.txt").read_text().splitlines()]


def until(condition: Callable[[], object], process: subprocess.Popen[Any] | None = None) -> None:
    """Wait until the condition is true, at most a minute, while the process is running."""
    end = time.monotonic() + 60
    while not condition():
        assert process is None or process.poll() is None, "the process ended too early"
        assert time.monotonic() < end
        time.sleep(0.01)


def verbs(calls: list[list[str]]) -> list[str]:
    return sorted(call[0] for call in calls)


def after(option: str, call: list[str]) -> str:
    return call[call.index(option) + 1]


def shell_texts(place: Path, environment: dict[str, str], mode: str) -> tuple[str, str, list[str]]:
    """The shell prefix and suffix of the workflow, and the unformatted commands of its rules.

    Args:
        mode: DEFAULT on one machine, REMOTE on a compute node.
    """
    code = (
        "import json, sys; from pathlib import Path; from snakemake.api import ResourceSettings, SnakemakeApi\n"
        "from snakemake.api import WorkflowSettings; from snakemake.shell import shell\n"
        "from snakemake_interface_executor_plugins.settings import ExecMode\n"
        "with SnakemakeApi() as api:\n"
        "    settings = WorkflowSettings(exec_mode=ExecMode[sys.argv[2]])\n"
        "    snakefile = Path(sys.argv[1])\n"
        "    made = api.workflow(ResourceSettings(), workflow_settings=settings, snakefile=snakefile)._workflow\n"
        "    commands = [rule.shellcmd for rule in made.rules if rule.shellcmd]\n"
        "print(json.dumps([shell._process_prefix, shell._process_suffix, commands]))"
    )
    words = [sys.executable, "-c", code, str(ROOT / "workflow/Snakefile"), mode]
    said = subprocess.run(words, cwd=place, env=environment, capture_output=True, text=True, check=True)
    before, behind, commands = json.loads(said.stdout.splitlines()[-1])
    return before, behind, commands
