"""The workflow over a stand-in for `ssm` that makes tiny files: what is made, and what is not made again."""

from __future__ import annotations

import base64
import json
import os
import re
import shutil
import signal
import socket
import subprocess
from pathlib import Path

import psutil
import pytest
from plan.mini import edit
from workflow.stand_in import ROOT, SNAKEMAKE, after, environment, make, run, snakemake, verbs

HEADLINE = ["evaluate", "evaluate", "judge", "plot", "report", "tokenize", "train", "train"]


def copy_code(place: Path) -> None:
    """A package of the folder's own, which snakemake imports in place of the project's."""
    shutil.copytree(ROOT / "ssm", place / "ssm", ignore=shutil.ignore_patterns("__pycache__"))


def change_code(place: Path, *names: str) -> None:
    for name in names:
        with (place / "ssm" / name).open("a") as file:
            file.write("\n")


def test_from_nothing_to_the_report_and_nothing_twice(place: Path) -> None:
    edit(place / "config", "config.yaml", "scale: smoke", "scale: smoke\nresults: a b")
    copy_code(place)
    results = place / "a b" / "smoke"
    first = make(place)
    # lg_fig5 alone is a headline figure; the others' work is left.
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

    # What is asked for has to be finished, and the headline figure stands on the front page.
    (pages,) = (call for call in first if call[0] == "report")
    assert pages == [
        *("report", "a b/smoke", "--out", "a b/smoke/report", "--front", "lg_fig5", "--figures", "lg_fig5"),
    ]

    # A figure's own text changed: its specs, images, verdicts and report, no training and no measuring.
    edit(place / "config", "figures/lg_fig5.yaml", "The curves.", "All curves.")
    assert verbs(make(place)) == ["judge", "plot", "report"]
    assert json.loads((results / "specs/figures/lg_fig5.json").read_text())["figure"]["caption"] == "All curves."

    # The code that draws changed: its images and the report. Code that trains and measures makes nothing anew.
    change_code(place, "figures/plots/bars.py", "training/loop.py", "evaluation/measure.py")
    assert verbs(make(place)) == ["plot", "report"]


@pytest.mark.exhaustive
def test_what_changes_is_made_anew_and_what_is_finished_stays(place: Path) -> None:
    edit(place / "config", "config.yaml", "scale: smoke", "scale: smoke\nresults: a b")
    assert verbs(make(place)) == HEADLINE

    # A new arm: one run, its table, and what is drawn from it. The shared base run is found, not trained.
    edit(
        place / "config",
        "figures/lg_fig5.yaml",
        "measurements:",
        "  control: {label: Control, from: base, training: posttrain}\nmeasurements:",
    )
    assert verbs(make(place)) == ["evaluate", "judge", "plot", "report", "train"]

    # All figures: what lg_fig4 needs besides the base run. Snakemake's own report holds every figure with its caption.
    all_figures = make(place, "all")
    assert verbs(all_figures) == ["evaluate", "judge", "plot", "report"]
    assert all_figures[-1][-4:] == ["lg_fig5", "--figures", "lg_fig4", "lg_fig5"]
    assert snakemake(place, "all", "--report", "report.html").returncode == 0
    shown = (place / "report.html").read_text()
    embedded = re.findall(r"base64,([A-Za-z0-9+/=]+)", shown)
    shown += "".join(base64.b64decode(text).decode(errors="replace") for text in embedded)
    assert all(caption in shown for caption in ("The curves.", "The norm."))

    # The text changed: everything that was made of it is made anew.
    (place / "my text" / "a.txt").write_text("Once upon another time.")
    assert verbs(make(place)) == sorted([*HEADLINE, "evaluate", "train"])

    # The text is gone: the finished store stays what it is. Another figure's content changed: no finished job runs.
    (place / "my text").rename(place / "moved")
    edit(place / "config", "figures/lg_fig4.yaml", "times_context: 8", "times_context: 4")
    assert make(place) == []
    assert verbs(make(place, "lg_fig4", report=False)) == ["evaluate", "judge", "plot"]
    # It is on the pages when these are asked for, by whichever name.
    assert verbs(make(place)) == ["report"]
    assert make(place) == []
    assert verbs(make(place, "lg")) == ["report"]


@pytest.mark.exhaustive
def test_pictures_verdicts_and_pages_are_made_anew_when_their_code_changes(place: Path) -> None:
    edit(place / "config", "config.yaml", "scale: smoke", "scale: smoke\nresults: a b")
    copy_code(place)
    reference = place / "reports/smoke/lg_fig4.json"
    reference.parent.mkdir(parents=True)
    reference.write_text("{}")
    make(place)
    reference.write_text("{ }")
    assert verbs(make(place)) == ["report"], "the reference results stand on its pages"
    for changed, again in (
        ("report/style.css", ["report"]),
        ("claims/verdict.py", ["judge", "report"]),
        ("figures/figure.py", ["judge", "plot", "report"]),
        ("training/loop.py", []),
        ("evaluation/measure.py", []),
    ):
        change_code(place, changed)
        assert verbs(make(place)) == again, changed


def test_a_failed_job_fails_the_run_keeps_its_log_and_goes_on(place: Path) -> None:
    (place / "fail").touch()
    result = snakemake(place, "--cores", "2", "lg_fig4")
    assert result.returncode != 0
    assert "train progress" in result.stdout + result.stderr, "progress must reach the terminal"
    assert (place / "results/smoke/logs/figures/lg_fig4.judge.log").read_text() == "judge progress\n"
    assert (place / "results/smoke/figures/lg_fig4.svg").is_file()
    (place / "fail").unlink()
    assert verbs(make(place, "lg_fig4", report=False)) == ["judge"]


@pytest.mark.exhaustive
def test_make_goes_on_after_a_killed_snakemake_and_keeps_away_from_a_living_one(place: Path) -> None:
    figures = ["make", "--no-print-directory", "-f", str(ROOT / "Makefile"), "figures", "TARGETS=lg_fig4"]
    os.mkfifo(place / "gate")
    living = subprocess.Popen(
        [*SNAKEMAKE, "--cores", "2", "lg_fig4"],
        cwd=place,
        env=environment(place),
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    with (place / "gate").open("w"):  # opens when the first job is at work
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
        assert psutil.wait_procs([server], timeout=100)[1] == [], "the fork server of its jobs ends with it"
        (place / "gate").unlink()
        # Its orphaned job still runs, and keeps nobody away.
        result = run(place, *figures)
    assert result.returncode == 0, result.stderr
    assert result.stderr.startswith("Unlocking the folder: the last snakemake here was killed.")
    assert (place / "results/smoke/verdicts/lg_fig4.parquet").is_file()


@pytest.mark.exhaustive
def test_results_that_another_folders_snakemake_works_on_are_left_alone(place: Path, tmp_path: Path) -> None:
    """Snakemake's own locks know their folder alone; two clones may share their results."""
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
        result = run(other, *SNAKEMAKE, *shared)
        assert result.returncode != 0
        told = f"A snakemake in {place} on {socket.gethostname()} uses {tmp_path / 'shared'}/smoke"
        assert told in result.stdout + result.stderr
        assert not (other / "calls.txt").exists()
        assert run(other, *SNAKEMAKE, "-n", *shared).returncode == 0, "a dry run uses no results"
        (place / "gate").unlink()
    assert living.wait(timeout=100) == 0
    assert run(other, *SNAKEMAKE, *shared).returncode == 0


@pytest.mark.exhaustive
def test_results_that_another_hosts_snakemake_works_on_are_left_alone(place: Path) -> None:
    """Two clones may lie at the same path of two hosts. On one host the folder's own locks do, unless they are off."""
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
        assert f"A snakemake in {place} on first uses results/smoke" in result.stdout + result.stderr
        assert (place / "calls.txt").read_text() == before
        # A job of it on another host is a snakemake as well, without hooks, and goes on.
        spec = next((place / "results/smoke/specs/data").iterdir())
        made = f"results/smoke/tokens/{spec.stem}/manifest.json"
        remote = ["--nolock", "--no-hooks", "--mode", "remote", "--cores", "1", "--force", "--config", "device=cpu"]
        job = subprocess.Popen([*SNAKEMAKE, made, *remote], cwd=place, env=around | {"OTHER_HOST": "node"})
        (place / "gate").unlink()
    assert job.wait(timeout=100) == 0
    assert living.wait(timeout=100) == 0
