"""The runs of a results folder: what each is doing, and how far it is.

Any file may be replaced, or vanish, while it is looked at: what is not there now is looked for again next time. A file
that is there and damaged makes its run's line say so, and no other's. Nothing but files is asked, so that it works for
jobs of other machines on a shared disk. Whether a run is alive is told by the age of its files: training writes its
progress every ten seconds. Clocks may differ by less than that limit.
"""

from __future__ import annotations

import time
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from ssm.base import progress
from ssm.base.errors import TableError, UserError, first_line
from ssm.base.names import natural
from ssm.base.records import read_run_record
from ssm.base.strict_parsing import read_json, shaped
from ssm.base.tables import METRICS, read_table

# in the order in which they are shown
STATES = ("unreadable", "running", "stale", "stopped", "diverged", "waiting", "finished")
RECORD = "run.json"
TABLES = ("metrics.parquet", "checkpoint.metrics.parquet")  # of a finished run; up to the last checkpoint
SLOW_STEPS = 5  # a run whose steps take minutes is stale after so many of them


@dataclass(frozen=True)
class RunView:
    """One run, as its files tell of it.

    Attributes:
        state: waiting (planned, not begun), running, stale (begun, and its files do not change any more), stopped (told
            to stop, or failed: the same command goes on), diverged, finished, unreadable (one of its files is damaged).
        done, total: steps; None: not known.
        rate: tokens a second, of the last minute; of a run that has ended, altogether.
        seconds_left: None: not known.
        losses: by step, up to the last checkpoint.
        note: what training says of itself last.
    """

    id: str
    state: str
    done: int | None = None
    total: int | None = None
    rate: float | None = None
    seconds_left: float | None = None
    losses: tuple[float, ...] = ()
    note: str = ""


@dataclass(frozen=True)
class ResultsView:
    """A results folder: its runs, and how many of the planned tables are there."""

    runs: tuple[RunView, ...]
    tables: int
    planned_tables: int


class Watcher:
    """Looks at a results folder again and again; a table of metrics that has not changed is not read twice.

    Args:
        folder: a scale's results, such as results/smoke.
        stale: seconds without a change after which a run counts as stale.

    Raises:
        UserError: there are no runs in the folder.
    """

    def __init__(self, folder: Path, stale: float):
        self.folder, self.stale = folder, stale
        self.read: dict[Path, tuple[tuple[int, int], tuple[float, ...]]] = {}
        if not _has_runs(folder):
            near = sorted(str(child) for child in folder.glob("*/") if _has_runs(child))
            hint = f"; did you mean {' or '.join(near)}?" if near else ""
            raise UserError(f"{folder}: no runs here{hint}")

    def look(self) -> ResultsView:
        """What the files say now."""
        planned, begun = _names(self.folder / "specs/runs", ".json"), _folders(self.folder / "runs")
        runs = [self._run(name) for name in sorted(planned | begun, key=natural)]
        tables, planned_tables = (
            _names(self.folder / place, suffix)
            for place, suffix in (("tables", ".parquet"), ("specs/measurements", ".json"))
        )
        order = {state: place for place, state in enumerate(STATES)}
        runs.sort(key=lambda run: order[run.state])
        return ResultsView(tuple(runs), len(tables & planned_tables or tables), len(planned_tables))

    def _run(self, name: str) -> RunView:
        try:
            return self._read_run(name)
        except UserError as error:
            return RunView(name, "unreadable", note=str(error))
        except OSError as error:  # a folder that is another user's
            return RunView(name, "unreadable", note=first_line(error))

    def _read_run(self, name: str) -> RunView:
        """Raises UserError: a file of the run is damaged."""
        folder = self.folder / "runs" / name
        record = read_run_record(folder / RECORD, TableError, "") if (folder / RECORD).exists() else None
        losses = self._losses(folder)
        if record is not None:
            done, total, rate = (record.get(key) for key in ("steps", "budget_steps", "tokens_per_second"))
            return RunView(name, record["status"], done, total, rate, losses=losses)
        changed = _last_change(folder)
        if changed is None:
            return RunView(name, "waiting")
        heartbeat = _heartbeat(folder / progress.FILE)
        if heartbeat is None:
            state = "stale" if time.time() - changed > self.stale else "running"
            return RunView(name, state, losses=losses)
        limit = max(self.stale, SLOW_STEPS * heartbeat.unit_seconds)
        state = "stale" if time.time() - changed > limit else "running"
        if heartbeat.state == "stopped":  # it has said so: no silence is too long for it
            state = "stopped"
        rate, left = (heartbeat.rate, heartbeat.seconds_left) if state == "running" else (None, None)
        return RunView(name, state, heartbeat.done, heartbeat.total, rate, left, losses, heartbeat.note)

    def _losses(self, folder: Path) -> tuple[float, ...]:
        """The loss by step, up to the last checkpoint."""
        for name in TABLES:
            path = folder / name
            try:
                status = path.stat()
                version = (status.st_mtime_ns, status.st_size)
                if self.read.get(path, (None,))[0] != version:
                    self.read[path] = version, tuple(read_table(path, METRICS)["loss"].to_list())
            except OSError:
                continue
            return self.read[path][1]
        return ()


def _has_runs(folder: Path) -> bool:
    return (folder / "runs").is_dir() or (folder / "specs/runs").is_dir()


def _names(folder: Path, suffix: str) -> set[str]:
    try:
        return {path.stem for path in folder.iterdir() if path.suffix == suffix and not path.name.startswith(".")}
    except OSError:
        return set()


def _folders(folder: Path) -> set[str]:
    try:
        return {path.name for path in folder.iterdir() if path.is_dir() and not path.name.startswith(".")}
    except OSError:
        return set()


def _heartbeat(path: Path) -> progress.Heartbeat | None:
    """What training says of itself; None: nothing yet.

    Raises:
        TableError: the file is damaged.
    """
    if not path.exists():
        return None
    what = "record of progress"
    return shaped(read_json(path, TableError, what), progress.Heartbeat, f"{path}: not a {what}", TableError)


def _last_change(folder: Path) -> float | None:
    """When the newest file of the folder was written, by the disk's clock; None: there is none."""
    times = []
    try:
        for path in folder.iterdir():
            with suppress(OSError):  # a temporary file that has its final name by now
                if not path.is_dir():
                    times.append(path.stat().st_mtime)
    except OSError:
        return None
    return max(times, default=None)
