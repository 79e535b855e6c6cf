"""`--log`: a file has all that a command and what it starts print, however it ends; the file itself stops no work."""

from __future__ import annotations

import errno
import os
import select
import signal
import subprocess
import sys
import textwrap
from pathlib import Path
from typing import Any

import psutil
import pytest

from ssm.base import log
from ssm.base.errors import UserError
from ssm.base.exit_codes import REQUEUE
from ssm.base.log import take_log

SECONDS = 60.0


def command(code: str, file: Path, **options: Any) -> subprocess.Popen[str]:
    """An `ssm` with `--log` whose verb is this code, which reads a line of its stdin where it waits."""
    verb = textwrap.indent(textwrap.dedent(code), "    ")
    code = (
        f"import os, signal, subprocess, sys\nimport ssm.cli.main as module\ndef verb(*words):\n{verb}\n    return 3\n"
    )
    code += f"module._dispatch = verb\nsys.exit(module.main(['plan', '--log', {str(file)!r}]))"
    pipes = dict.fromkeys(("stdin", "stdout", "stderr"), subprocess.PIPE)
    return subprocess.Popen([sys.executable, "-c", code], text=True, **pipes | options)


def ended(process: subprocess.Popen[str]) -> tuple[int, str, str]:
    """Exit code, stdout and stderr; the copier has ended then as well."""
    out, err = process.communicate(timeout=SECONDS)
    return process.returncode, out, err


def test_both_streams_and_other_processes_are_in_the_log_and_stay_where_they_were(tmp_path: Path) -> None:
    log = tmp_path / "new folder" / "log.txt"
    says = """
        print("one", flush=True)
        os.write(2, b"two\\n")
        subprocess.run("echo three; echo four >&2", shell=True)
        print("five")
    """
    assert ended(command(says, log)) == (3, "one\nthree\nfive\n", "two\nfour\n")
    assert sorted(log.read_text().split()) == sorted(["one", "two", "three", "four", "five"])
    assert ended(command("print('six')", log)) == (3, "six\n", "")
    assert log.read_text() == "six\n"


def test_who_has_ended_has_its_whole_log_there(tmp_path: Path) -> None:
    """What starts `ssm` looks into the log when it has ended: it waits for the copier, be that slow."""
    process = command("print('.', flush=True); input(); print('the end')", tmp_path / "log")
    assert process.stdin is not None
    assert process.stdout is not None
    assert process.stdout.readline() == ".\n"
    (copier,) = psutil.Process(process.pid).children()
    copier.suspend()
    process.stdin.write("\n")
    process.stdin.flush()
    with pytest.raises(subprocess.TimeoutExpired):
        process.wait(0.3)
    copier.resume()
    assert process.wait(SECONDS) == 3
    assert (tmp_path / "log").read_text() == ".\nthe end\n"


@pytest.mark.parametrize("whom", ["ssm", "its group"])
@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM, signal.SIGUSR1, signal.SIGINT])
def test_the_last_words_are_in_the_log(whom: str, number: signal.Signals, tmp_path: Path) -> None:
    log = tmp_path / "log"
    process = command("print('last words', file=sys.stderr); print('.', flush=True); input()", log, process_group=0)
    assert process.stdout is not None
    assert process.stdout.readline() == ".\n"
    (os.kill if whom == "ssm" else os.killpg)(process.pid, number)
    code, _, err = ended(process)
    after = {
        signal.SIGKILL: (-signal.SIGKILL, ""),
        signal.SIGINT: (130, "ssm plan: interrupted\n"),
    }.get(number, (REQUEUE, f"ssm plan: stopped by {number.name}; the same command starts it again\n"))
    assert (code, err) == (after[0], f"last words\n{after[1]}")
    assert sorted(log.read_text().splitlines()) == sorted((f"{err}.").splitlines())


def test_a_traceback_is_in_the_log(tmp_path: Path) -> None:
    """Of a defect, or of a package that cannot be imported."""
    log = tmp_path / "log"
    code, out, err = ended(command("import no_such_package", log))
    assert (code, out) == (1, "")
    assert err.startswith("Traceback")
    assert err.endswith("ModuleNotFoundError: No module named 'no_such_package'\n")
    assert log.read_text() == err


def test_a_full_disk_stops_no_work_and_is_told_of_once(tmp_path: Path) -> None:
    process = command("print('one', flush=True); input(); print('two')", Path("/dev/full"))
    assert process.stdout is not None
    assert process.stdout.readline() == "one\n"
    out, err = process.communicate("\n", timeout=SECONDS)
    assert (process.returncode, out) == (3, "two\n")
    problem = "cannot be written (No space left on device); the work goes on, and part of its log is lost"
    assert err == f"/dev/full: {problem}\n"


def test_a_disk_too_full_for_a_new_file_stops_no_work(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    opened, path = os.open, tmp_path / "log"

    def full(name: str | Path, *how: int) -> int:
        if name == path:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return opened(name, *how)

    monkeypatch.setattr(os, "open", full)
    nowhere = log._open(path)
    assert os.write(nowhere, b"lost") == 4
    os.close(nowhere)
    says = f"{path}: cannot be written (No space left on device); the work goes on without a log\n"
    assert capsys.readouterr().err == says


def test_a_terminal_that_is_closed_stops_no_work(tmp_path: Path) -> None:
    process = command("input(); print('on and on', flush=True); input(); print('to the end')", tmp_path / "log")
    assert process.stdin is not None
    assert process.stdout is not None
    process.stdout.close()
    process.stdin.write("\n\n")
    process.stdin.close()
    assert process.wait(SECONDS) == 3
    assert (tmp_path / "log").read_text() == "on and on\nto the end\n"


def test_nobody_waits_for_what_is_left_running(tmp_path: Path) -> None:
    """As multiprocessing leaves a process that holds stderr, and waits for our own end."""
    reading, writing = os.pipe()
    log = tmp_path / "log"
    code = f"""
        os.set_inheritable({reading}, True)
        subprocess.Popen("read line; echo at last", shell=True, stdin={reading}, close_fds=False)
        print("first", flush=True)
    """
    process = command(code, log, pass_fds=[reading])
    assert process.wait(SECONDS) == 3
    assert log.read_text() == "first\n"
    os.write(writing, b"\n")
    assert process.communicate(timeout=SECONDS)[0] == "first\nat last\n"
    assert log.read_text() == "first\nat last\n"
    os.close(reading)
    os.close(writing)


def test_progress_is_plain_lines_at_a_terminal_too(tmp_path: Path) -> None:
    """Where jobs share one."""
    ours, its = os.openpty()
    code = """
        from ssm.base.progress import Progress
        with Progress("count", 2) as progress:
            progress.printed = -1e9
            progress.advance()
        print(sys.stderr.isatty())
    """
    process = command(code, tmp_path / "log", stdout=its, stderr=its)
    assert process.wait(SECONDS) == 3
    os.close(its)
    seen = b""
    while select.select([ours], [], [], 0)[0]:
        try:
            seen += os.read(ours, 1000)
        except OSError:  # nobody is at the other end
            break
    os.close(ours)
    log = (tmp_path / "log").read_text()
    assert "count [##########..........]  50%  1/2 steps" in log
    assert "False" in log
    assert seen.decode().replace("\r\n", "\n") == log


def test_only_the_first_of_several_processes_empties_the_file(tmp_path: Path) -> None:
    log = tmp_path / "log"
    log.write_text("zero\n")
    assert ended(command("print(1)", log, env=os.environ | {"RANK": "1"}))[0] == 3
    assert log.read_text() == "zero\n1\n"
    assert ended(command("print(0)", log, env=os.environ | {"RANK": "0"}))[0] == 3
    assert log.read_text() == "0\n"


def test_a_path_that_is_none_is_one_line(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    for path in (tmp_path, tmp_path / "file" / "log"):
        code, out, err = ended(command("print('never')", path))
        assert (code, out) == (2, "")
        assert err.startswith(f"ssm plan: {path}: no log can be written there (")
        assert err.count("\n") == 1


def test_the_option_is_taken_from_the_others() -> None:
    assert take_log(["train", "a", "--log", "b", "--out", "c"]) == (["train", "a", "--out", "c"], Path("b"))
    assert take_log(["train", "--log=a=b", "--logs"]) == (["train", "--logs"], Path("a=b"))
    assert take_log([]) == ([], None)
    for wrong in (["train", "--log"], ["train", "--log", ""], ["train", "--log="], ["train", "--log", "--out", "c"]):
        with pytest.raises(UserError, match="argument --log: expected the path of a file"):
            take_log(wrong)
