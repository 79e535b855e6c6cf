"""Progress of long work: a live bar at a terminal, plain lines elsewhere, and a file for `ssm watch`."""

from __future__ import annotations

import json
import sys
import time
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from types import TracebackType
from typing import Self

from tqdm import tqdm

from ssm.base.counting import clock, short
from ssm.base.errors import OutputError
from ssm.base.files import write_text

HEARTBEATS = "progress.json"  # in the folder of the run
FIRST_LINES, LINES = 5.0, 60.0  # seconds between two plain lines: at the start, and after some minutes
HEARTBEAT_SECONDS = 10.0  # between two writes of the file
RECENT = 60.0  # shortest period of a rate, in seconds
BAR = 20  # characters of the bar in a plain line


@dataclass(frozen=True)
class Heartbeat:
    """Content of the file: how much is done, and how fast."""

    done: int
    total: int  # 0: unknown
    unit: str
    rate: float  # `rate_unit` per second
    rate_unit: str
    unit_seconds: float  # seconds per unit
    seconds_left: float | None
    note: str
    state: str  # running, or stopped before the end


class Progress:
    """Count `total` units of work (0: unknown) under a title.

    If stderr is a terminal, this is a tqdm bar. Otherwise it prints lines such as `train base_s1
    [########............]  40%  1200/3000 steps  38k tokens/s  0:46 left  loss 1.31`. At first there is one every five
    seconds, later one per minute. Rates and times are those of the last one or two minutes.

    With `file`, a `Heartbeat` is written there as JSON at the first step and then every ten seconds. If it cannot be
    written, the work continues.
    """

    def __init__(
        self,
        title: str,
        total: int,
        unit: str = "steps",
        rate_unit: str | None = None,
        shown: bool = True,
        file: Path | None = None,
    ):
        self.title, self.total, self.unit = title, total, unit
        self.rate_unit = rate_unit or unit
        self.shown = shown  # only one of several processes shows it
        self.file = file if shown else None
        live = shown and sys.stderr.isatty()
        self.bar = tqdm(total=total or None, desc=title, unit=f" {unit}", dynamic_ncols=True) if live else None
        self.done = 0
        self.work = 0.0
        self.note = ""
        self.started = self.printed = time.monotonic()
        self.last_heartbeat = float("-inf")
        self.marks = [(self.started, 0, 0.0)]  # (time, done, work) twice, a minute apart

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self.done:
            self._heartbeat("running" if kind is None else "stopped")
        if self.bar is not None:
            self.bar.close()
        elif kind is None and self.done and self.printed > self.started:
            self._line()

    def resume_at(self, done: int) -> None:
        """Count `done` units as done by an earlier process. They do not count for the rate."""
        self.done = done
        self.marks = [(time.monotonic(), done, self.work)]
        if self.bar is not None:
            self.bar.update(done)
            self.bar.unpause()

    def advance(self, units: int = 1, work: float | None = None, note: str = "") -> None:
        """Count `units` more as done, which were `work` units of the rate (tokens, say). `note` ends the line."""
        self.done += units
        self.work += units if work is None else work
        self.note = note
        now = time.monotonic()
        if now - self.marks[-1][0] >= RECENT:
            self.marks = [self.marks[-1], (now, self.done, self.work)]
        if now - self.last_heartbeat >= HEARTBEAT_SECONDS:
            self._heartbeat("running")
        if self.bar is not None:
            self.bar.update(units)
            if note:
                self.bar.set_postfix_str(f"{self._rate()}, {note}", refresh=False)
        elif now - self.printed >= min(LINES, max(FIRST_LINES, (now - self.started) / 4)):
            self._line()

    def _speed(self) -> tuple[float, float]:
        """(rate per second, seconds per unit) over the last one or two minutes."""
        since, done, work = self.marks[0]
        seconds = max(time.monotonic() - since, 1e-9)
        return (self.work - work) / seconds, seconds / max(self.done - done, 1)

    def _rate(self) -> str:
        return f"{short(self._speed()[0])} {self.rate_unit}/s"

    def _heartbeat(self, state: str) -> None:
        self.last_heartbeat = time.monotonic()
        if self.file is None:
            return
        rate, each = self._speed()
        left = each * max(self.total - self.done, 0) if self.total else None
        heartbeat = Heartbeat(self.done, self.total, self.unit, rate, self.rate_unit, each, left, self.note, state)
        # Not synced: this takes a short job a tenth of its time. The next heartbeat replaces a damaged one.
        with suppress(OutputError):
            write_text(self.file, json.dumps(asdict(heartbeat)) + "\n", sync=False)

    def _line(self) -> None:
        self.printed = time.monotonic()
        if not self.shown:
            return
        if self.total:
            filled = int(BAR * self.done / self.total)
            left = self._speed()[1] * max(self.total - self.done, 0)
            bar = f"[{'#' * filled}{'.' * (BAR - filled)}] {self.done / self.total:4.0%}  {self.done}/{self.total}"
            parts = [f"{self.title} {bar} {self.unit}", self._rate(), f"{clock(left)} left", self.note]
        else:  # the total is unknown
            parts = [f"{self.title} {self.done} {self.unit}", self._rate(), self.note]
        sys.stderr.write("  ".join(part for part in parts if part) + "\n")  # one write, because jobs share the terminal
        sys.stderr.flush()
