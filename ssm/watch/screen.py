"""The runs of a results folder as lines of text that fit into a terminal."""

from __future__ import annotations

from collections import Counter

from ssm.base.counting import clock, counted, short
from ssm.base.errors import printable
from ssm.watch.runs import STATES, ResultsView, RunView

BLOCKS, CROSS, GAP = "▁▂▃▄▅▆▇█", "×", "…"
PLAIN = str.maketrans(BLOCKS + CROSS + GAP, "_.-:=+*#x~")  # for terminals without these characters
SPARKS = 12  # characters of a sparkline
COLUMNS = (10, 4, 8, 8, SPARKS, 6)  # widths of state, done, rate, time left, sparkline, loss
HEADER = ("STATE", "DONE", "TOKENS/S", "LEFT", "LOSS", "")
NARROWEST = 12  # characters of a name
REASONS = 3  # at most so many runs say why they are unreadable


def lines(view: ResultsView, width: int, height: int | None = None) -> list[str]:
    """What to print: a summary, a header, a line for each run that was started, and why a run is unreadable.

    Waiting runs are only counted, because there can be thousands.

    Args:
        width: columns. Names that are too long are cut in the middle.
        height: the largest number of lines; None: no limit.
    """
    counts = Counter(run.state for run in view.runs)
    parts = [f"{counts[state]} {state}" for state in STATES if counts[state]]
    summary = [f"{counted(len(view.runs), 'run')}: {', '.join(parts) or 'none'}"]
    if view.planned_tables:
        summary.append(f"{view.tables} of {view.planned_tables} tables")
    room = width - sum(COLUMNS) - len(COLUMNS)
    started = [run for run in view.runs if run.state != "waiting"]
    reasons = [printable(run.note) for run in started if run.state == "unreadable"][:REASONS]
    name = max(NARROWEST, min(room, max((len(run.id) for run in started), default=0)))
    shown = started if height is None else started[: max(1, height - len(summary) - len(reasons) - 2)]
    summary += [_row("RUN", HEADER, name), *(_row(printable(run.id), _cells(run), name) for run in shown)]
    if len(shown) < len(started):
        summary.append(f"and {len(started) - len(shown)} more: use a taller window or --once")
    return summary + reasons


def for_terminal(line: str, encoding: str) -> str:
    """The line, with only characters that the terminal's encoding has."""
    try:
        line.encode(encoding)
        return line
    except UnicodeEncodeError:
        return line.translate(PLAIN).encode(encoding, "replace").decode(encoding)


def sparkline(losses: tuple[float, ...]) -> str:
    """The losses as blocks. Each block is the mean over an equal number of steps. NaN is a cross."""
    count = min(SPARKS, len(losses))
    bins = [losses[i * len(losses) // count : (i + 1) * len(losses) // count] for i in range(count)]
    means = [sum(values) / len(values) for values in bins]
    finite = [mean for mean in means if abs(mean) < float("inf")]
    low, high = min(finite, default=0.0), max(finite, default=0.0)
    scale = (len(BLOCKS) - 1) / (high - low) if high > low else 0.0
    return "".join(BLOCKS[round((mean - low) * scale)] if abs(mean) < float("inf") else CROSS for mean in means)


def _cells(run: RunView) -> tuple[str, ...]:
    done = f"{int(100 * run.done / run.total)}%" if run.done is not None and run.total else ""
    rate = "" if run.rate is None else short(run.rate)
    left = "" if run.seconds_left is None else _time(run.seconds_left)
    last = printable(run.note.removeprefix("loss "))[: COLUMNS[-1]] if run.note.startswith("loss ") else ""
    if run.losses and not last:
        last = f"{run.losses[-1]:.3f}"
    return run.state, done, rate, left, sparkline(run.losses), last


def _row(name: str, cells: tuple[str, ...], width: int) -> str:
    """A row of the table: names and states are aligned left, and numbers right."""
    state, *numbers = cells
    aligned = [f"{cell:>{room}}" for cell, room in zip(numbers, COLUMNS[1:], strict=True)]
    aligned[3] = f"{numbers[3]:<{SPARKS}}"
    return " ".join([f"{_cut(name, width):<{width}}", f"{state:<{COLUMNS[0]}}", *aligned]).rstrip()


def _cut(name: str, width: int) -> str:
    """The beginning and the end of a name, because models differ in one and seeds and hashes in the other."""
    if len(name) <= width:
        return name
    end = (width - 1) // 2
    return f"{name[: width - 1 - end]}{GAP}{name[len(name) - end :]}"


def _time(seconds: float) -> str:
    hours = round(seconds / 3600)
    return clock(seconds) if hours < 100 else f"{hours // 24}d {hours % 24}h"
