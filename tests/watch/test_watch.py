"""`ssm watch` shows runs in every state from their files, and writes nothing."""

from __future__ import annotations

import errno
import hashlib
import io
import os
import pty
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from small import make_store, run_spec

from ssm.base import progress
from ssm.base.errors import UserError
from ssm.base.files import write_json
from ssm.base.records import CHECKPOINT_METRICS
from ssm.base.tables import METRICS, write_table
from ssm.cli.main import main
from ssm.cli.watch import CLEAR, EPILOG
from ssm.training.checkpoint_schedule import CheckpointSchedule
from ssm.training.loop import train
from ssm.watch import runs as module
from ssm.watch.runs import STATES, ResultsView, RunView, Watcher
from ssm.watch.screen import BLOCKS, for_terminal, lines, sparkline

LONG = "mamba2-slow-T1024-state-passing-s1-0123456789ab"


def metrics(path: Path, losses: list[float]) -> None:
    rows = [dict.fromkeys(METRICS.columns, 0) | {"step": i, "loss": loss} for i, loss in enumerate(losses)]
    write_table(pl.DataFrame(rows, schema=METRICS.columns), METRICS, path, {})


def heartbeat(folder: Path, **changes: Any) -> None:
    content = {"done": 300, "total": 1000, "unit": "steps", "unit_seconds": 0.5, "seconds_left": 350.0}
    content |= {"rate": 38214.0, "rate_unit": "tokens", "note": "loss 2.718", "state": "running"}
    write_json(folder / progress.HEARTBEATS, content | changes)


def aged(folder: Path, seconds: float) -> None:
    for path in folder.iterdir():
        os.utime(path, (time.time() - seconds,) * 2)


def test_the_help_explains_every_state() -> None:
    assert {line.split("  ")[0] for line in EPILOG.splitlines()} >= {*STATES}


@pytest.fixture
def results(tmp_path: Path) -> Path:
    """A results folder with a run in every state."""
    results, record = tmp_path / "results/smoke", {"steps": 1000, "budget_steps": 1000, "tokens_per_second": 12345.6}
    for name in ("done", "dead", "gone", "slow", "told", "late", LONG):
        write_json(results / f"specs/runs/{name}.json", {})
    for name in ("a", "b", "c"):
        write_json(results / f"specs/measurements/{name}.json", {})
    for name in ("a", "old"):  # the second is not planned
        metrics(results / f"tables/{name}.parquet", [1.0])
    write_json(results / "runs/done/run.json", record | {"status": "finished"})
    metrics(results / "runs/done/metrics.parquet", [4.0, 3.0, 2.0, 1.25])
    write_json(results / "runs/dead/run.json", record | {"status": "diverged", "steps": 120})
    for name in ("gone", "slow", "told", LONG):
        heartbeat(results / "runs" / name)
    metrics(results / "runs" / LONG / CHECKPOINT_METRICS, [3.0, 2.0, 1.0])
    aged(results / "runs/gone", 400)
    heartbeat(results / "runs/slow", unit_seconds=300.0)
    aged(results / "runs/slow", 400)
    heartbeat(results / "runs/told", state="stopped")
    return results


def states(folder: Path) -> dict[str, str]:
    """Run -> its state, in the order of display."""
    return {run.id: run.state for run in Watcher(folder, stale=180).look().runs}


def contents(folder: Path) -> dict[str, tuple[str, int]]:
    return {
        str(path.relative_to(folder)): (hashlib.sha256(path.read_bytes()).hexdigest(), path.stat().st_mtime_ns)
        for path in folder.rglob("*")
        if path.is_file()
    }


def test_every_state_is_recognized_and_nothing_is_written(results: Path) -> None:
    before = contents(results)
    view = Watcher(results, stale=180).look()
    assert contents(results) == before
    expected = {LONG: "running", "slow": "running", "gone": "stale", "told": "stopped", "dead": "diverged"}
    expected |= {"late": "waiting", "done": "finished"}
    assert [(run.id, run.state) for run in view.runs] == list(expected.items())
    assert (view.tables, view.planned_tables) == (1, 3)
    (results / "tables/a.parquet").unlink()
    assert Watcher(results, stale=180).look().tables == 0


def test_a_running_run_shows_progress_rate_time_left_and_loss_in_80_columns(
    results: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    assert main(["watch", str(results)]) == 0
    text = capsys.readouterr().out.splitlines()
    assert text[0] == "7 runs: 2 running, 1 stale, 1 stopped, 1 diverged, 1 waiting, 1 finished"
    assert text[1] == "1 of 3 tables"
    assert all(len(line) <= 80 for line in text)
    assert not any(line.startswith("late") for line in text), "waiting runs are only counted"
    (live,) = (line for line in text if line.startswith("mamba2-slow-T"))
    assert live.split() == [live.split()[0], "running", "30%", "38.2k", "5:50", "█▅▁", "2.718"]
    assert live.split()[0].endswith("0123456789ab")
    (done,) = (line for line in text if line.startswith("done"))
    assert done.split() == ["done", "finished", "100%", "12.3k", "█▅▃▁", "1.250"]
    (stale,) = (line for line in text if line.startswith("gone"))
    assert stale.split() == ["gone", "stale", "30%", "2.718"], "no rate and no time left"


def test_a_wide_terminal_shows_whole_names_and_a_low_one_the_first_rows() -> None:
    view = ResultsView(tuple(RunView(f"{LONG}-{i}", "stopped") for i in range(30)), 0, 0)
    assert any(f"{LONG}-29 " in line for line in lines(view, 130))
    assert len(lines(view, 130)) == 32
    low = lines(view, 80, 10)
    assert len(low) == 10
    assert low[-1] == "and 23 more: use a taller window or --once"


def test_a_sparkline_uses_all_blocks() -> None:
    assert sparkline(()) == ""
    assert sparkline((2.0,)) == BLOCKS[0]
    assert sparkline(tuple(float(i) for i in range(8))) == BLOCKS
    assert sparkline(tuple(float(-i) for i in range(1200)))[::11] == BLOCKS[7] + BLOCKS[0]
    assert len(sparkline(tuple(float(i) for i in range(1200)))) == 12
    assert sparkline((1.0, float("nan"), 2.0)) == BLOCKS[0] + "×" + BLOCKS[7]


def test_a_stopped_run_never_becomes_stale(results: Path) -> None:
    aged(results / "runs/told", 7 * 24 * 3600)
    assert (states(results)["told"], states(results)["gone"]) == ("stopped", "stale")


@pytest.mark.parametrize("content", [b"", b"{", b"[]", b'{"done": 3'])
def test_a_damaged_file_only_affects_its_own_run(results: Path, content: bytes) -> None:
    folder = results / "runs" / LONG
    before = states(results)
    for name in (progress.HEARTBEATS, CHECKPOINT_METRICS, "run.json"):
        whole = (folder / name).read_bytes() if (folder / name).exists() else None
        (folder / name).write_bytes(content)
        assert main(["watch", str(results)]) == 0
        assert states(results) == before | {LONG: "unreadable"}
        (folder / name).unlink() if whole is None else (folder / name).write_bytes(whole)


def test_the_screen_says_why_a_run_is_unreadable(results: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (results / "runs" / LONG / "run.json").write_text("{")
    assert main(["watch", str(results)]) == 0
    last = capsys.readouterr().out.splitlines()[-1]
    assert last.startswith(f"{results / 'runs' / LONG / 'run.json'}: ")


def test_an_unreadable_folder_only_affects_its_own_run(results: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real = Path.stat

    def refusing(path: Path, **options: Any) -> Any:  # root can read everything
        if path.parent == results / "runs" / LONG:
            raise PermissionError(errno.EACCES, "Permission denied", str(path))
        return real(path, **options)

    before = states(results)
    monkeypatch.setattr(Path, "stat", refusing)
    runs = {run.id: run for run in Watcher(results, stale=180).look().runs}
    assert {name: run.state for name, run in runs.items()} == before | {LONG: "unreadable"}
    assert "Permission denied" in runs[LONG].note


def test_a_file_that_vanishes_is_no_error(results: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder, real = results / "runs" / LONG, Path.iterdir

    def vanishing(path: Path) -> Any:
        return iter([*real(path), path / ".gone.tmp"]) if path == folder else real(path)

    monkeypatch.setattr(Path, "iterdir", vanishing)
    assert states(results)[LONG] == "running"


def test_unchanged_metrics_are_read_once(results: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    watcher, reads = Watcher(results, stale=180), []
    real = module.read_table
    monkeypatch.setattr(module, "read_table", lambda path, schema: reads.append(path) or real(path, schema))
    watcher.look()
    first = len(reads)
    watcher.look()
    assert len(reads) == first == 2
    metrics(results / "runs" / LONG / CHECKPOINT_METRICS, [3.0, 2.0, 1.0, 0.5])
    assert next(run for run in watcher.look().runs if run.id == LONG).losses[-1] == 0.5


@pytest.mark.parametrize("encoding", ["ascii", "latin-1"])
def test_a_terminal_without_block_characters_gets_others(
    results: Path, monkeypatch: pytest.MonkeyPatch, encoding: str
) -> None:
    written = io.BytesIO()
    monkeypatch.setattr(sys, "stdout", io.TextIOWrapper(written, encoding))
    monkeypatch.setenv("COLUMNS", "70")
    assert main(["watch", str(results)]) == 0
    text = written.getvalue().decode(encoding)
    assert for_terminal(sparkline((4.0, 3.0, 2.0, 1.25)), encoding) == "#=-_"
    assert "#=-_" in text
    assert "~" in text  # the cut of a name


def test_escape_characters_are_removed(results: Path, capsys: pytest.CaptureFixture[str]) -> None:
    heartbeat(results / "runs/a\x1b[31mb", note="loss \x1b[2J")
    assert main(["watch", str(results)]) == 0
    assert "\x1b" not in capsys.readouterr().out


def test_a_folder_without_runs_is_one_line(results: Path) -> None:
    with pytest.raises(UserError, match=f"^{results.parent}: no runs here$"):
        Watcher(results.parent, stale=180)


def test_the_files_of_a_real_training_are_read(tmp_path: Path) -> None:
    import torch

    store = make_store(tmp_path, documents=12)
    often = CheckpointSchedule(steps=7)
    train(run_spec(store.spec), store, tmp_path / "runs/x", torch.device("cpu"), checkpoints=often)
    (run,) = Watcher(tmp_path, stale=180).look().runs
    assert (run.state, run.done, run.total, len(run.losses)) == ("finished", 30, 30, 30)
    (tmp_path / "runs/x/run.json").unlink()
    (tmp_path / "runs/x/metrics.parquet").unlink()
    (run,) = Watcher(tmp_path, stale=180).look().runs
    assert (run.state, run.total, len(run.losses)) == ("running", 30, 30)


def test_a_terminal_is_refreshed_until_ctrl_c(results: Path) -> None:
    ours, theirs = pty.openpty()
    command = [sys.executable, "-m", "ssm", "watch", str(results), "--every", "0.05"]
    watching = subprocess.Popen(command, stdin=theirs, stdout=theirs, stderr=theirs, start_new_session=True)
    os.close(theirs)
    seen = b""
    while seen.count(b"7 runs: 2 running") < 3 and len(seen) < 20_000:
        seen += os.read(ours, 4096)
    watching.send_signal(signal.SIGINT)
    assert watching.wait(timeout=30) == 0
    assert seen.count(CLEAR.encode()) >= 3
    os.close(ours)
