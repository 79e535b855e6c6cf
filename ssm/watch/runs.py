"""The state and the progress of the runs in a results folder.

Only files are read, so this also works for jobs on other machines, over a shared disk. Training writes its progress
every ten seconds, so the age of its files shows whether a run is alive. (The clocks of the machines must agree to less
than the limit for "stale".) Files can be replaced or vanish while they are read. A missing file is looked for again
next time. A damaged file makes only its own run "unreadable".
"""

from __future__ import annotations

import time
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from ssm.base import progress
from ssm.base.errors import TableError, UserError, first_line
from ssm.base.names import natural
from ssm.base.records import CHECKPOINT_METRICS, RUN_METRICS, RUN_RECORD, read_run_record
from ssm.base.strict_parsing import read_json, shaped
from ssm.base.tables import METRICS, read_table

# in the order of display
STATES = ("unreadable", "running", "stale", "stopped", "diverged", "waiting", "finished")
TABLES = (RUN_METRICS, CHECKPOINT_METRICS)
SLOW_STEPS = 5  # if steps take minutes, a run is stale after the time of this many steps


@dataclass(frozen=True)
class RunView:
    """The state of a run, read from its files. None: not known.

    Attributes:
        state: one of STATES. A waiting run is planned, but not started. The files of a stale run do not change any
            more. A stopped run ended by a signal or an error, and the same command continues it. An unreadable run
            has a damaged file.
        done, total: steps.
        rate: tokens per second in the last minute, or the average of a run that has ended.
        losses: by step, up to the last checkpoint.
        note: the last message of training.
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
    """The runs of a results folder, and the numbers of finished and planned tables."""

    runs: tuple[RunView, ...]
    tables: int
    planned_tables: int


class Watcher:
    """Reads a results folder repeatedly. Unchanged tables of metrics are not read again.

    Args:
        folder: a scale's results, such as results/smoke.
        stale: seconds without a change after which a run is stale.

    Raises:
        UserError: the folder has no runs.
    """

    def __init__(self, folder: Path, stale: float):
        self.folder, self.stale = folder, stale
        self.read: dict[Path, tuple[tuple[int, int], tuple[float, ...]]] = {}
        if not any((folder / runs).is_dir() for runs in ("runs", "specs/runs")):
            raise UserError(f"{folder}: no runs here")

    def look(self) -> ResultsView:
        """Read the present state of all runs."""
        planned, begun = _names(self.folder / "specs/runs", ".json"), _names(self.folder / "runs")
        runs = [self._run(name) for name in sorted(planned | begun, key=natural)]
        tables = _names(self.folder / "tables", ".parquet")
        planned_tables = _names(self.folder / "specs/measurements", ".json")
        order = {state: place for place, state in enumerate(STATES)}
        runs.sort(key=lambda run: order[run.state])
        return ResultsView(tuple(runs), len(tables & planned_tables), len(planned_tables))

    def _run(self, name: str) -> RunView:
        try:
            return self._read_run(name)
        except UserError as error:
            return RunView(name, "unreadable", note=str(error))
        except OSError as error:  # a folder that is another user's
            return RunView(name, "unreadable", note=first_line(error))

    def _read_run(self, name: str) -> RunView:
        folder = self.folder / "runs" / name
        record = read_run_record(folder / RUN_RECORD, TableError, "") if (folder / RUN_RECORD).exists() else None
        losses = self._losses(folder)
        if record is not None:
            done, total, rate = (record.get(key) for key in ("steps", "budget_steps", "tokens_per_second"))
            return RunView(name, record["status"], done, total, rate, losses=losses)
        changed = _last_change(folder)
        if changed is None:
            return RunView(name, "waiting")
        heartbeat = _heartbeat(folder / progress.HEARTBEATS)
        if heartbeat is None:
            state = "stale" if time.time() - changed > self.stale else "running"
            return RunView(name, state, losses=losses)
        limit = max(self.stale, SLOW_STEPS * heartbeat.unit_seconds)
        state = "stale" if time.time() - changed > limit else "running"
        if heartbeat.state == "stopped":  # a stopped run never becomes stale
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


def _names(folder: Path, suffix: str | None = None) -> set[str]:
    """The names of visible files with a suffix, or of visible folders; empty if `folder` cannot be read."""
    try:
        visible = [path for path in folder.iterdir() if not path.name.startswith(".")]
        if suffix is None:
            return {path.name for path in visible if path.is_dir()}
        return {path.stem for path in visible if path.suffix == suffix}
    except OSError:
        return set()


def _heartbeat(path: Path) -> progress.Heartbeat | None:
    """The last progress that training wrote; None: nothing yet.

    Raises:
        TableError: the file is damaged.
    """
    if not path.exists():
        return None
    what = "record of progress"
    return shaped(read_json(path, TableError, what), progress.Heartbeat, f"{path}: not a {what}", TableError)


def _last_change(folder: Path) -> float | None:
    """The time of the newest file, by the disk's clock; None: there are no files."""
    times = []
    try:
        for path in folder.iterdir():
            with suppress(OSError):  # a temporary file was renamed in the meantime
                if not path.is_dir():
                    times.append(path.stat().st_mtime)
    except OSError:
        return None
    return max(times, default=None)
