"""Signals of a scheduler to a job: which jobs are started again. `ssm` and SLURM's commands are stand-ins."""

from __future__ import annotations

import os
import re
import shlex
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from plan.mini import edit, write_config
from workflow.stand_in import ROOT, SNAKEMAKE, executable, shell_texts, snakemake, until

from ssm.base.exit_codes import LOST, REQUEUE, TIME_OVER

ON_A_NODE = [*SNAKEMAKE, "--mode", "remote", "--cores", "1", "--printshellcmds"]
VERBS = ("tokenize", "train", "evaluate", "diagnose", "extend")
SECONDS = 60.0

# Writes the outputs of a command. In the one that the file `wait` names, it waits for a signal and exits like `ssm`.
SSM = f"""#!{sys.executable} -S
import os, pathlib, signal, sys, time
verb, *rest = sys.argv[1:]
out = pathlib.Path(rest[rest.index("--out") + 1])
if verb == pathlib.Path("wait").read_text():
    for number in (signal.SIGTERM, signal.SIGUSR1):
        signal.signal(number, lambda *about: sys.exit({REQUEUE}))
    pathlib.Path("waits").touch()
    time.sleep({SECONDS})
    sys.exit("no signal came")
files = {{
    "tokenize": ["manifest.json"],
    "train": ["run.json", "metrics.parquet", "model.safetensors"],
    "diagnose": ["index.html", "diagnosis.json"],
    "extend": ["index.html", "result.json"],
}}.get(verb)
for path in [out / name for name in files] if files else [out]:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(verb)
"""
SCONTROL = """#!/bin/sh
test "$1" = show || echo "$@" >> {}
"""


@pytest.fixture
def place(tmp_path: Path) -> Path:
    """A folder with a small config, a checkpoint, and stand-ins for `ssm` and SLURM's commands."""
    write_config(tmp_path / "config")
    edit(tmp_path / "config", "config.yaml", "scale: smoke", "scale: smoke\ndevice: cpu")
    edit(tmp_path / "config", "data.yaml", "{kind: stdlib}", '{kind: files, paths: ["text"]}')
    (tmp_path / "text").mkdir()
    (tmp_path / "text/a.txt").write_text("Once upon a time.")
    (tmp_path / "model").mkdir()
    for name in ("config.json", "model.safetensors"):
        (tmp_path / "model" / name).write_text("{}")
    with (tmp_path / "config/models.yaml").open("a") as models:
        models.write('mine: {checkpoint: model, text: ["text/*.txt"], context: {smoke: 64, paper: 2048}}\n')
    (tmp_path / "workflow").symlink_to(ROOT / "workflow")
    (tmp_path / "state").write_text("RUNNING\n")
    executable(tmp_path / "bin/ssm", SSM)
    executable(tmp_path / "bin/squeue", f"#!/bin/sh\ncat {shlex.quote(str(tmp_path / 'state'))}\n")
    executable(tmp_path / "bin/scontrol", SCONTROL.format(shlex.quote(str(tmp_path / "scontrol"))))
    return tmp_path


def environment(place: Path) -> dict[str, str]:
    path = f"{place / 'bin'}{os.pathsep}{os.environ['PATH']}"
    return os.environ | {"PATH": path, "PYTHONPATH": str(ROOT), "HOME": str(place), "SLURM_JOB_ID": "7"}


def asked_of_slurm(place: Path) -> str:
    """The calls of `scontrol` since the last call of this function, without `scontrol show`."""
    calls = place / "scontrol"
    said = calls.read_text() if calls.exists() else ""
    calls.unlink(missing_ok=True)
    return said


def told(place: Path, verb: str, number: int, everybody: bool) -> int:
    """The exit code of snakemake on a compute node after a signal during the command `verb`.

    Args:
        everybody: signal all processes (as proctrack/pgid and linuxproc do), or only snakemake (as cgroup does).
    """
    (place / "wait").write_text(verb)
    (place / "waits").unlink(missing_ok=True)
    targets = [f"{verb}_mine"] if verb in ("diagnose", "extend") else ["lg_fig5"]
    with (place / f"{verb}.log").open("w") as log:
        job = subprocess.Popen(
            [*ON_A_NODE, *targets], cwd=place, env=environment(place), stdout=log, stderr=log, start_new_session=True
        )
    try:
        until((place / "waits").exists, job)
        (os.killpg if everybody else os.kill)(job.pid, number)
        return job.wait(SECONDS)
    finally:
        if job.poll() is None:
            os.killpg(job.pid, signal.SIGKILL)


@pytest.mark.exhaustive
@pytest.mark.parametrize("everybody", [True, False])
def test_a_signaled_job_starts_again_whichever_process_gets_the_signal(place: Path, everybody: bool) -> None:
    numbers = [signal.SIGUSR1, signal.SIGTERM]
    for verb in ("train", "extend"):
        assert told(place, verb, numbers[0], everybody) == 1, (place / f"{verb}.log").read_text()
        said = (place / f"{verb}.log").read_text()
        assert asked_of_slurm(place) == "requeue 7\n", (verb, numbers[0], said)
        numbers.reverse()


def commands(place: Path, *mode: str) -> dict[str, str]:
    """The commands of the jobs of a dry run, by verb."""
    asked = [*mode, "--dry-run", "--printshellcmds", "lg_fig5", "diagnose_mine", "extend_mine"]
    planned = snakemake(place, *asked, variables=environment(place))
    planned.check_returncode()
    lines = re.findall(r"^(?:Shell command: )?(ssm .* tee .*)$", planned.stdout, re.MULTILINE)
    return {verb: next(line for line in lines if line.startswith(f"ssm {verb} ")) for verb in VERBS}


@pytest.mark.exhaustive
def test_no_other_job_starts_again(place: Path) -> None:
    """The exit code or signal of `ssm` and the state of the job in SLURM decide."""
    ends = {f"exit {code}": code in (REQUEUE, TIME_OVER) for code in (1, 2, LOST, 130, REQUEUE, TIME_OVER)}
    ends |= {f"kill -{name} $$": name in ("TERM", "USR1") for name in ("TERM", "USR1", "KILL")}
    before, behind, _ = shell_texts(place, environment(place), "REMOTE")

    def run(end: str, words: str = "ssm train x") -> int:
        executable(place / "bin/ssm", f"#!/bin/sh\n{end}\n")
        text = f"{before} {words} {behind}"
        return subprocess.run(["bash", "-c", text], cwd=place, env=environment(place), check=False).returncode

    for end, again in ends.items():
        code = run(end)
        assert code == int(end.split()[1]) if end.startswith("exit") else code > 128, end
        assert asked_of_slurm(place) == "requeue 7\n" * again, end
    for state in ("COMPLETING", ""):  # cancelled or out of time; unknown to squeue
        (place / "state").write_text(state)
        assert run(f"exit {REQUEUE}") == REQUEUE
        assert asked_of_slurm(place) == ""
    (place / "state").write_text("RUNNING\n")
    for command in commands(place, "--mode", "remote").values():
        assert run(f"exit {REQUEUE}", command) == REQUEUE
        assert asked_of_slurm(place) == "requeue 7\n"


@pytest.mark.exhaustive
def test_on_one_machine_a_command_replaces_its_shell(place: Path) -> None:
    """Signals reach `ssm` itself, and the job is not started again."""
    before, behind, _ = shell_texts(place, environment(place), "DEFAULT")
    for verb, command in commands(place).items():
        (place / "waits").unlink(missing_ok=True)
        (place / "wait").write_text(verb)
        shell = subprocess.Popen(["bash", "-c", f"{before} {command} {behind}"], cwd=place, env=environment(place))
        until((place / "waits").exists, shell)
        shell.terminate()
        assert shell.wait(SECONDS) == REQUEUE, verb
        assert asked_of_slurm(place) == ""
