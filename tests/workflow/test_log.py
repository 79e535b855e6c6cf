"""The output of a job is in the terminal and in its log, however the job ends. Problems with the log stop no job."""

from __future__ import annotations

import os
import re
import select
import shlex
import signal
import subprocess
import sys
import textwrap
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from workflow.stand_in import environment, executable, make_place, shell_texts, until

from ssm.base.exit_codes import REQUEUE

SECONDS = 60.0
# `ssm` with a command that the test defines.
SSM = f"""#!{sys.executable}
import os, pathlib, signal, subprocess, sys
import ssm.cli.main as module
def verb(*words):
    exec(pathlib.Path("verb.py").read_text())
    return 3
module._dispatch = verb
pathlib.Path("pid").write_text(str(os.getpid()))
sys.exit(module.main(["train"]))
"""


@dataclass(frozen=True)
class Shell:
    """The shell text around a command, in one mode of the workflow."""

    place: Path
    mode: str
    before: str
    behind: str
    logged: str

    def start(self, verb: str, log: Path, **options: Any) -> subprocess.Popen[str]:
        """A job that runs this code. `input()` in it waits for a line on its stdin."""
        (self.place / "verb.py").write_text(textwrap.dedent(verb))
        text = f"{self.before} ssm train {self.logged.replace('{log:q}', shlex.quote(str(log)))} {self.behind}"
        pipes = dict.fromkeys(("stdin", "stdout", "stderr"), subprocess.PIPE)
        around = {"cwd": self.place, "env": environment(self.place), "text": True, "process_group": 0}
        return subprocess.Popen(["bash", "-c", text], **around | pipes | options)

    def code(self, code: int) -> int:
        """The exit code of the job for one of `ssm`. On a compute node, it is that of the shell around `ssm`."""
        return 128 - code if code < 0 and self.mode == "REMOTE" else code


@pytest.fixture(scope="module", params=["DEFAULT", pytest.param("REMOTE", marks=pytest.mark.exhaustive)])
def shell(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Shell:
    place = make_place(tmp_path_factory.mktemp("place"))
    before, behind, commands = shell_texts(place, environment(place), request.param)
    executable(place / ".venv/bin/ssm", SSM)
    executable(place / ".venv/bin/squeue", "#!/bin/sh\n")  # as for an unknown job
    (logged,) = {command[command.index("&>") :] for command in commands}
    assert len(commands) > 5
    return Shell(place, request.param, before, behind, logged)


def ended(process: subprocess.Popen[str]) -> tuple[int, str]:
    """Exit code and stderr, after the end of the job and of tee."""
    out, err = process.communicate(timeout=SECONDS)
    assert out == ""
    return process.returncode, err


def waits(log: Path) -> bool:
    """Whether the log has a line that is a dot, with its end: Python can write the two one after the other."""
    return log.exists() and ".\n" in log.read_text().splitlines(keepends=True)


def test_stdout_stderr_and_child_processes_are_in_the_log_and_in_the_terminal(shell: Shell, tmp_path: Path) -> None:
    log = tmp_path / "a log.txt"
    says = """
        print("one", flush=True)
        os.write(2, b"two\\n")
        subprocess.run("echo three; echo four >&2", shell=True)
        print("five")
    """
    assert ended(shell.start(says, log)) == (3, "one\ntwo\nthree\nfour\nfive\n")
    assert log.read_text() == "one\ntwo\nthree\nfour\nfive\n"
    assert ended(shell.start("print('six')", log)) == (3, "six\n")
    assert log.read_text() == "six\n"


@pytest.mark.parametrize("whom", ["ssm", "its group"])
@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM, signal.SIGUSR1, signal.SIGINT])
def test_output_before_a_signal_is_in_the_log(shell: Shell, whom: str, number: signal.Signals, tmp_path: Path) -> None:
    log = tmp_path / "log"
    process = shell.start("print('last words', file=sys.stderr); print('.', flush=True); input()", log)
    until(lambda: waits(log))
    if whom == "ssm":
        os.kill(int((shell.place / "pid").read_text()), number)
    else:
        os.killpg(process.pid, number)
    code, err = ended(process)
    after = {
        signal.SIGKILL: (-signal.SIGKILL, ""),
        signal.SIGINT: (130, "ssm train: interrupted\n"),
    }.get(number, (REQUEUE, f"ssm train: stopped by {number.name}; the same command starts it again\n"))
    alone = number == signal.SIGKILL and whom == "its group"  # the shell of the compute node is killed too
    assert code == (after[0] if alone else shell.code(after[0]))
    assert err.startswith(f"last words\n.\n{after[1]}")
    assert log.read_text() == f"last words\n.\n{after[1]}"


def test_a_traceback_is_in_the_log(shell: Shell, tmp_path: Path) -> None:
    log = tmp_path / "log"
    code, err = ended(shell.start("import no_such_package", log))
    assert code == 1
    assert err.startswith("Traceback")
    assert err.endswith("ModuleNotFoundError: No module named 'no_such_package'\n")
    assert log.read_text() == err


@pytest.mark.parametrize(("log", "problem"), [("/dev/full", "No space left on device"), ("/", "Is a directory")])
def test_a_log_that_cannot_be_written_stops_no_job(shell: Shell, log: str, problem: str) -> None:
    code, err = ended(shell.start("print('one', flush=True); print('two')", Path(log)))
    assert code == 3
    # tee prints one error, possibly between a word and the end of its line.
    assert re.sub(rf"tee: [^\n]*{problem}\n", "", err, count=1) == "one\ntwo\n"


def test_a_closed_terminal_stops_no_job(shell: Shell, tmp_path: Path) -> None:
    process = shell.start("input(); print('on and on', flush=True); input(); print('to the end')", tmp_path / "log")
    assert process.stdin is not None
    assert process.stderr is not None
    process.stderr.close()
    process.stdin.write("\n\n")
    process.stdin.close()
    assert process.wait(SECONDS) == 3
    until(lambda: (tmp_path / "log").read_text() == "on and on\nto the end\n")


def test_a_job_does_not_wait_for_processes_that_it_leaves_running(shell: Shell, tmp_path: Path) -> None:
    """For example, a process of multiprocessing that has stderr open and waits for the end of its parent."""
    reading, writing = os.pipe()
    log = tmp_path / "log"
    code = f"""
        os.set_inheritable({reading}, True)
        subprocess.Popen("read line; echo at last", shell=True, stdin={reading}, close_fds=False)
        print("first", flush=True)
    """
    process = shell.start(code, log, pass_fds=[reading])
    assert process.wait(SECONDS) == 3
    until(lambda: log.read_text() == "first\n")
    os.write(writing, b"\n")
    assert process.communicate(timeout=SECONDS)[1] == "first\nat last\n"
    assert log.read_text() == "first\nat last\n"
    os.close(reading)
    os.close(writing)


def test_progress_is_plain_lines_in_a_terminal_that_jobs_share(shell: Shell, tmp_path: Path) -> None:
    ours, its = os.openpty()
    code = """
        from ssm.base.progress import Progress
        with Progress("count", 2) as progress:
            progress.printed = -1e9
            progress.advance()
        print(sys.stderr.isatty())
    """
    process = shell.start(code, tmp_path / "log", stdout=its, stderr=its)
    os.close(its)
    assert process.wait(SECONDS) == 3
    seen = b""
    while select.select([ours], [], [], SECONDS)[0]:
        try:
            seen += os.read(ours, 1000)
        except OSError:  # the other end is closed
            break
    os.close(ours)
    log = (tmp_path / "log").read_text()
    assert "count [##########..........]  50%  1/2 steps" in log
    assert "False" in log
    assert seen.decode().replace("\r\n", "\n") == log
