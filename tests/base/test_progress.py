"""Progress: lines that thin out, rates of the last minutes, and the file for those who watch."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from ssm.base import progress
from ssm.base.progress import Progress


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """The time, to be set by the test."""
    now = [1000.0]
    monkeypatch.setattr(progress.time, "monotonic", lambda: now[0])
    return now


def work(
    clock: list[float], shown: Progress, steps: int, seconds: float, note: str = "loss 1.500", tokens: float = 100
) -> None:
    for _ in range(steps):
        clock[0] += seconds
        shown.advance(1, tokens, note)


def test_a_line_tells_rate_share_time_left_and_loss_once_a_minute(
    clock: list[float], capsys: pytest.CaptureFixture[str]
) -> None:
    with Progress("train x", 3600, rate_unit="tokens") as shown:
        work(clock, shown, 3600, 1.0)
    lines = capsys.readouterr().err.splitlines()
    assert lines[0] == ("train x [....................]   0%  5/3600 steps  100 tokens/s  59:55 left  loss 1.500"), (
        "the first line comes after five seconds"
    )
    assert 60 <= len(lines) <= 75, "an hour: a few lines at first, then one a minute"
    assert lines[-1].startswith("train x [####################] 100%  3600/3600 steps")
    assert all(len(line) < 120 for line in lines)


def test_the_rate_is_that_of_the_last_minutes(clock: list[float], capsys: pytest.CaptureFixture[str]) -> None:
    with Progress("train x", 1200, rate_unit="tokens") as shown:
        shown.resume_at(200)
        work(clock, shown, 500, 1.0)
        capsys.readouterr()
        work(clock, shown, 300, 2.0)
    line = capsys.readouterr().err.splitlines()[-1]
    assert "50 tokens/s  6:40 left" in line, "neither the fast hour before it, nor what another process had done"


def test_the_file_says_how_far_it_is(clock: list[float], tmp_path: Path) -> None:
    file = tmp_path / progress.HEARTBEATS
    with Progress("train x", 100, rate_unit="tokens", file=file) as shown:
        shown.resume_at(20)
        assert not file.exists()
        work(clock, shown, 1, 2.0)
        assert json.loads(file.read_text())["done"] == 21, "at the first step"
        work(clock, shown, 4, 2.0)
        assert json.loads(file.read_text())["done"] == 21
        work(clock, shown, 1, 2.0)
        assert json.loads(file.read_text()) == {
            "done": 26,
            "total": 100,
            "unit": "steps",
            "rate": 50.0,
            "rate_unit": "tokens",
            "unit_seconds": 2.0,
            "seconds_left": 148.0,
            "note": "loss 1.500",
            "state": "running",
        }
        work(clock, shown, 1, 2.0)
    assert json.loads(file.read_text())["done"] == 27, "and at the end"
    assert [path.name for path in tmp_path.iterdir()] == [file.name]


def test_the_file_tells_of_work_that_stopped(clock: list[float], tmp_path: Path) -> None:
    file = tmp_path / progress.HEARTBEATS
    shown = Progress("train x", 100, file=file)
    work(clock, shown, 3, 1.0)
    shown.__exit__(KeyboardInterrupt, KeyboardInterrupt(), None)
    assert json.loads(file.read_text())["state"] == "stopped"


def test_a_file_that_cannot_be_written_stops_nothing(clock: list[float], tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with Progress("train x", 10, file=tmp_path / "file" / progress.HEARTBEATS) as shown:
        work(clock, shown, 10, 20.0)
    assert shown.done == 10


def test_of_several_processes_one_writes(
    clock: list[float], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with Progress("train x", 10, shown=False, file=tmp_path / progress.HEARTBEATS) as shown:
        work(clock, shown, 10, 20.0)
    assert capsys.readouterr().err == ""
    assert not list(tmp_path.iterdir())
