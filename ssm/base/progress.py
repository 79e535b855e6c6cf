"""Progress of long work: a live bar at a terminal, plain lines with rate and time left everywhere else."""

from __future__ import annotations

import sys
import time
from types import TracebackType
from typing import Self

from tqdm import tqdm

LINE_EVERY = 5.0  # seconds between two plain lines
BAR = 20  # characters of the bar in a plain line


class Progress:
    """Counts `total` units of work (0: nobody knows how many) under a title.

    At a terminal (stderr is one and `live` is left alone) it is a tqdm bar. Elsewhere, in a log file or when several
    jobs share one terminal, a line such as
    `train base_s1 [########............]  40%  1200/3000 steps  38k tokens/s  0:46 left  loss 1.31` every few seconds.
    """

    def __init__(
        self, title: str, total: int, unit: str = "steps", rate_unit: str | None = None, live: bool | None = None
    ):
        self.title, self.total, self.unit = title, total, unit
        self.rate_unit = rate_unit or unit
        live = sys.stderr.isatty() if live is None else live
        self.bar = tqdm(total=total or None, desc=title, unit=f" {unit}", dynamic_ncols=True) if live else None
        self.done = 0
        self.skipped = 0  # units that an earlier, killed process had done: they count as done, not in the rate
        self.work = 0.0
        self.started = time.monotonic()
        self.printed = self.started

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self.bar is not None:
            self.bar.close()
        elif kind is None and self.done and self.printed > self.started:
            self._line("")

    def resume_at(self, done: int) -> None:
        """Count `done` units as done by an earlier process."""
        self.done = self.skipped = done
        if self.bar is not None:
            self.bar.update(done)
            self.bar.unpause()

    def advance(self, units: int = 1, work: float | None = None, note: str = "") -> None:
        """`units` more are done, which was `work` of the rate's unit (say tokens); `note` ends the line."""
        self.done += units
        self.work += units if work is None else work
        if self.bar is not None:
            self.bar.update(units)
            if note:
                self.bar.set_postfix_str(f"{self._rate()}, {note}", refresh=False)
        elif time.monotonic() - self.printed >= LINE_EVERY:
            self._line(note)

    def _rate(self) -> str:
        seconds = max(time.monotonic() - self.started, 1e-9)
        return f"{_short(self.work / seconds)} {self.rate_unit}/s"

    def _line(self, note: str) -> None:
        self.printed = time.monotonic()
        seconds = self.printed - self.started
        if self.total:
            filled = int(BAR * self.done / self.total)
            left = seconds / max(self.done - self.skipped, 1) * max(self.total - self.done, 0)
            bar = f"[{'#' * filled}{'.' * (BAR - filled)}] {self.done / self.total:4.0%}  {self.done}/{self.total}"
            parts = [f"{self.title} {bar} {self.unit}", self._rate(), f"{_clock(left)} left", note]
        else:  # nobody knows how much there is
            parts = [f"{self.title} {self.done} {self.unit}", self._rate(), note]
        sys.stderr.write("  ".join(part for part in parts if part) + "\n")  # in one write: jobs share the terminal
        sys.stderr.flush()


def _short(value: float) -> str:
    """Three significant digits with k, M, G: 38214 is 38.2k."""
    for factor, letter in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if value >= factor:
            return f"{value / factor:.3g}{letter}"
    return f"{value:.3g}"


def _clock(seconds: float) -> str:
    """1:02:03, or 2:03 below an hour."""
    minutes, second = divmod(round(seconds), 60)
    hours, minute = divmod(minutes, 60)
    return f"{hours}:{minute:02}:{second:02}" if hours else f"{minute}:{second:02}"
