"""What the workflow makes, and what it makes again. A stand-in for `ssm` writes tiny files."""

from __future__ import annotations

import base64
import errno
import fcntl
import json
import os
import re
import shlex
import shutil
import signal
import socket
import subprocess
from importlib import import_module
from pathlib import Path
from typing import Any

import polars as pl
import psutil
import pytest
from plan.mini import edit
from workflow.stand_in import ROOT, SNAKEMAKE, after, environment, make, run, snakemake, verbs

from ssm.base.errors import OutputError, UserError
from ssm.base.files import lock
from ssm.base.tables import write_table
from ssm.specs.measurements.position_loss import PositionLoss

HEADLINE = ["evaluate", "evaluate", "judge", "plot", "report", "tokenize", "train", "train"]


def copy_code(place: Path) -> None:
    """A copy of the package, which snakemake imports instead of the project's."""
    shutil.copytree(ROOT / "ssm", place / "ssm", ignore=shutil.ignore_patterns("__pycache__"))


def change_code(place: Path, *names: str) -> None:
    for name in names:
        with (place / "ssm" / name).open("a") as file:
            file.write("\n")


def test_the_headline_report_is_made_once(place: Path) -> None:
    results = place / "a b" / "smoke"
    first = make(place)
    # Only lg_fig5 is a headline figure.
    assert verbs(first) == HEADLINE
    assert (results / "report/index.html").is_file()
    assert not (results / "figures/lg_fig4.svg").exists()
    (parent,) = (call for call in first if call[0] == "train" and "--parent" not in call)
    (child,) = (call for call in first if call[0] == "train" and "--parent" in call)
    assert after("--parent", child) == after("--out", parent)
    assert child[-6:] == ["--device", "auto", "--threads", "1", "--processes", "1"]
    measured = {after("--run", call) for call in first if call[0] == "evaluate"}
    assert measured == {after("--out", parent), after("--out", child)}
    assert make(place) == []
    # `ssm watch` counts the tables that have a spec. The table of lg_fig4 has none.
    written = {path.stem for path in (results / "specs/measurements").iterdir()}
    assert written == {Path(after("--out", call)).stem for call in first if call[0] == "evaluate"}

    # The report needs lg_fig5 to be finished, and shows it on the front page.
    (pages,) = (call for call in first if call[0] == "report")
    assert pages == [
        *("report", "a b/smoke", "--out", "a b/smoke/report", "--front", "lg_fig5", "--figures", "lg_fig5"),
    ]

    # A new text in a figure file: pictures, verdicts and the report are made again; nothing is trained or measured.
    edit(place / "config", "figures/lg_fig5.yaml", "The curves.", "All curves.")
    assert verbs(make(place)) == ["judge", "plot", "report"]
    assert json.loads((results / "specs/figures/lg_fig5.json").read_text())["figure"]["caption"] == "All curves."


@pytest.mark.exhaustive
def test_only_results_that_depend_on_a_change_are_made_again(place: Path) -> None:
    assert verbs(make(place)) == HEADLINE

    # A new arm: its run, its table, and the figure. The shared base run is not trained again.
    edit(
        place / "config",
        "figures/lg_fig5.yaml",
        "measurements:",
        "  control: {label: Control, from: base, training: posttrain}\nmeasurements:",
    )
    assert verbs(make(place)) == ["evaluate", "judge", "plot", "report", "train"]

    # All figures: only the table of lg_fig4 is missing. Snakemake's own report has every figure with its caption.
    all_figures = make(place, "all")
    assert verbs(all_figures) == ["evaluate", "judge", "plot", "report"]
    assert all_figures[-1][-4:] == ["lg_fig5", "--figures", "lg_fig4", "lg_fig5"]
    assert snakemake(place, "all", "--report", "report.html").returncode == 0
    shown = (place / "report.html").read_text()
    embedded = re.findall(r"base64,([A-Za-z0-9+/=]+)", shown)
    shown += "".join(base64.b64decode(text).decode(errors="replace") for text in embedded)
    assert all(caption in shown for caption in ("The curves.", "The norm."))

    # A new text: everything is made again.
    (place / "my text" / "a.txt").write_text("Once upon another time.")
    assert verbs(make(place)) == sorted([*HEADLINE, "evaluate", "train"])

    # An older text takes its place, as after `mv`: the same.
    (place / "old.txt").write_text("Once upon an older time.")
    os.utime(place / "old.txt", (0, 0))
    (place / "old.txt").replace(place / "my text" / "a.txt")
    assert verbs(make(place)) == sorted([*HEADLINE, "evaluate", "train"])
    assert make(place) == []

    # The text is gone: the finished token store stays. Another figure changed: its jobs run when it is requested.
    (place / "my text").rename(place / "moved")
    edit(place / "config", "figures/lg_fig4.yaml", "times_context: 8", "times_context: 4")
    assert make(place) == []
    assert verbs(make(place, "lg_fig4", report=False)) == ["evaluate", "judge", "plot"]
    # Each target that makes the report includes it.
    assert verbs(make(place)) == ["report"]
    assert make(place) == []
    assert verbs(make(place, "lg")) == ["report"]
    # Training needs the longest windows, which results of an older version do not have.
    shutil.rmtree(place / "a b/smoke/specs/windows")
    assert verbs(make(place, "--forcerun", "train")).count("train") == 3


@pytest.mark.exhaustive
def test_pictures_verdicts_and_pages_are_made_again_when_their_code_changes(place: Path) -> None:
    copy_code(place)
    reference = place / "reports/smoke/lg_fig4.json"
    reference.parent.mkdir(parents=True)
    reference.write_text("{}")
    make(place)
    reference.write_text("{ }")
    assert verbs(make(place)) == ["report"], "its pages show the reference results"
    for changed, again in (
        ("report/style.css", ["report"]),
        ("figures/plots/bars.py", ["plot", "report"]),
        ("claims/verdict.py", ["judge", "report"]),
        ("figures/figure.py", ["judge", "plot", "report"]),
        ("training/loop.py", []),
        ("evaluation/measure.py", []),
    ):
        change_code(place, changed)
        assert verbs(make(place)) == again, changed


@pytest.mark.exhaustive
def test_a_figure_that_another_folder_made_is_named_if_it_has_changed(place: Path) -> None:
    make(place)
    figures, verdicts = place / "a b/smoke/specs/figures", place / "a b/smoke/verdicts/lg_fig5.parquet"
    judged = json.loads((figures / "lg_fig5.json").read_text())
    row = pl.DataFrame({"sequence": 0, "position_from": 0, "position_to": 1, "loss": 1.0})
    write_table(row, PositionLoss.table, verdicts, {"figure": judged})
    shutil.rmtree(place / ".snakemake")  # as in another folder
    assert "was made with other" not in snakemake(place, "--cores", "1").stderr
    assert verbs(make(place)) == []
    edit(place / "config", "figures/lg_fig5.yaml", "The curves.", "All curves.")
    assert "was made with other" not in snakemake(place, "--cores", "1", "lg_fig4").stderr, "nobody asked for lg_fig5"
    told = snakemake(place, "--cores", "1").stderr
    (again,) = re.findall("lg_fig5 was made with other arms.* To make it again, add: (.*)", told)
    assert verbs(make(place, *shlex.split(again))) == ["judge", "plot", "report"]


def test_after_a_failed_job_the_run_fails_and_can_continue(place: Path) -> None:
    (place / "fail").touch()
    result = snakemake(place, "--cores", "2", "lg_fig4")
    assert result.returncode != 0
    assert "train progress" in result.stdout + result.stderr, "progress must reach the terminal"
    assert (place / "a b/smoke/logs/figures/lg_fig4.judge.log").read_text() == "judge progress\n"
    assert (place / "a b/smoke/figures/lg_fig4.svg").is_file()
    (place / "fail").unlink()
    assert verbs(make(place, "lg_fig4", report=False)) == ["judge"]


@pytest.mark.exhaustive
def test_make_continues_after_a_killed_snakemake_and_refuses_to_disturb_a_running_one(place: Path) -> None:
    figures = ["make", "--no-print-directory", "-f", str(ROOT / "Makefile"), "figures", "TARGETS=lg_fig4"]
    os.mkfifo(place / "gate")
    living = subprocess.Popen(
        [*SNAKEMAKE, "--cores", "2", "lg_fig4"],
        cwd=place,
        env=environment(place),
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    with (place / "gate").open("w"):  # opens when the first job is running
        result = run(place, *figures)
        assert result.returncode != 0
        told = r"Another snakemake is running in this folder.* stop them \(scancel\)\.\n"
        assert re.match(f"{told}make:", result.stderr)
        locks = {path.read_text() for path in (place / ".snakemake/locks").iterdir()}
        (server,) = (
            child for child in psutil.Process(living.pid).children() if "ssm.cli.fork_server" in child.cmdline()
        )
        for arguments in (["--cores", "2", "lg_fig4"], ["--unlock"]):
            result = snakemake(place, *arguments)
            assert result.returncode != 0
            assert re.search(f"^{told}", result.stderr, re.MULTILINE)
        assert {path.read_text() for path in (place / ".snakemake/locks").iterdir()} == locks != set()
        living.send_signal(signal.SIGKILL)
        living.wait()
        assert psutil.wait_procs([server], timeout=100)[1] == [], "its fork server ends too"
        (place / "gate").unlink()
        # Its orphaned job is still running, which does not matter.
        result = run(place, *figures)
    assert result.returncode == 0, result.stderr
    assert result.stderr.startswith("Unlocking the folder: the last snakemake here was killed.")
    assert (place / "a b/smoke/verdicts/lg_fig4.parquet").is_file()


@pytest.mark.parametrize("number", [errno.ENOSYS, errno.EIO])
def test_make_unlocks_nothing_on_a_disk_without_locks(
    number: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Another snakemake could be running there."""

    def flock(*_: object) -> None:
        raise OSError(number, "refused")

    monkeypatch.syspath_prepend(ROOT / "workflow/scripts")
    monkeypatch.chdir(tmp_path)
    (tmp_path / ".snakemake/locks").mkdir(parents=True)
    (tmp_path / ".snakemake/locks/0.output.lock").touch()
    instances, unlock = (import_module(name) for name in ("instance_lock", "unlock"))
    with instances.hold_instance_lock(alone=False), pytest.raises(UserError, match="Another snakemake is running"):
        instances.hold_instance_lock(alone=True)
    monkeypatch.setattr(fcntl, "flock", flock)
    assert instances.hold_instance_lock(alone=False) is None
    monkeypatch.setattr(subprocess, "run", lambda *_, **__: pytest.fail("it unlocks"))
    assert unlock.main() == 1
    assert capsys.readouterr().err.endswith("if no other snakemake is running here, type: snakemake --unlock\n")


def test_the_lock_of_another_user_shows_whether_their_snakemake_has_ended(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Only they can write it."""
    monkeypatch.syspath_prepend(ROOT / "workflow/scripts")
    instances, opened, holders = import_module("instance_lock"), Path.open, tmp_path / ".workflows"
    holders.mkdir()
    (holders / "theirs").write_text("/theirs on host\n")

    def denying(path: Path, mode: str = "r") -> Any:
        if path.name == "theirs" and mode != "r":
            raise PermissionError(errno.EACCES, "Permission denied", str(path))
        return opened(path, mode)

    monkeypatch.setattr(Path, "open", denying)
    instances.hold_results(tmp_path).close()
    with (holders / "theirs").open() as theirs:
        lock(theirs, alone=False)
        with pytest.raises(UserError, match=f"A snakemake in /theirs on host uses {tmp_path}: wait until it ends, or"):
            instances.hold_results(tmp_path)
    (holders / "a folder").mkdir()
    with pytest.raises(OutputError, match=r"a folder: cannot be read \(Is a directory\)"):
        instances.hold_results(tmp_path)


@pytest.mark.exhaustive
def test_results_that_cannot_be_written_are_named_without_a_traceback(place: Path) -> None:
    (place / "a b/smoke").mkdir(parents=True)
    (place / "a b/smoke/specs").touch()
    result = snakemake(place, "--cores", "1", "lg_fig4")
    said = result.stdout + result.stderr
    assert result.returncode != 0
    assert re.search(r"^a b/smoke/specs/\S+: cannot be written \(Not a directory\)$", said, re.MULTILINE)
    assert "files.py" not in said


@pytest.mark.exhaustive
def test_two_folders_cannot_work_on_the_same_results(place: Path, tmp_path: Path) -> None:
    """Two clones may share their results, but Snakemake itself locks only one folder."""
    other = tmp_path / "other"
    other.mkdir()
    for name in ("config", "workflow", ".venv", "my text"):
        (other / name).symlink_to(place / name)
    shared = ["--cores", "2", "lg_fig4", "--config", f"results={tmp_path / 'shared'}"]
    os.mkfifo(place / "gate")
    living = subprocess.Popen(
        [*SNAKEMAKE, *shared], cwd=place, env=environment(place), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    with (place / "gate").open("w"):
        result = snakemake(other, *shared)
        assert result.returncode != 0
        told = f"A snakemake in {place} on {socket.gethostname()} uses {tmp_path / 'shared'}/smoke"
        assert told in result.stdout + result.stderr
        assert not (other / "calls.txt").exists()
        assert snakemake(other, "-n", *shared).returncode == 0, "a dry run uses no results"
        (place / "gate").unlink()
    assert living.wait(timeout=100) == 0
    assert snakemake(other, *shared).returncode == 0


@pytest.mark.exhaustive
def test_two_hosts_cannot_work_on_the_same_results(place: Path) -> None:
    """Clones on two hosts may have the same path. --nolock switches off the locks that protect a folder on one host."""
    (place / "elsewhere").mkdir()
    other = "import os, socket\nif name := os.environ.get('OTHER_HOST'):\n    socket.gethostname = lambda: name\n"
    (place / "elsewhere/sitecustomize.py").write_text(other)
    around = environment(place) | {"PYTHONPATH": f"{place / 'elsewhere'}{os.pathsep}{ROOT}"}
    command = [*SNAKEMAKE, "--cores", "2", "lg_fig4"]
    os.mkfifo(place / "gate")
    hosts = around | {"OTHER_HOST": "first"}
    living = subprocess.Popen(command, cwd=place, env=hosts, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    with (place / "gate").open("w"):
        before = (place / "calls.txt").read_text()
        again = [*command, "--nolock", "--forcerun", "tokenize"]
        result = subprocess.run(
            again, cwd=place, env=around | {"OTHER_HOST": "second"}, capture_output=True, text=True, timeout=100
        )
        assert result.returncode != 0
        assert f"A snakemake in {place} on first uses a b/smoke" in result.stdout + result.stderr
        assert (place / "calls.txt").read_text() == before
        # A job on a compute node is a snakemake without hooks, and is not refused.
        spec = next((place / "a b/smoke/specs/data").iterdir())
        made = f"a b/smoke/tokens/{spec.stem}/manifest.json"
        remote = ["--nolock", "--no-hooks", "--mode", "remote", "--cores", "1", "--force", "--config", "device=cpu"]
        job = subprocess.Popen([*SNAKEMAKE, made, *remote], cwd=place, env=around | {"OTHER_HOST": "node"})
        (place / "gate").unlink()
    assert job.wait(timeout=100) == 0
    assert living.wait(timeout=100) == 0
