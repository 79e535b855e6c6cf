"""Rows of panels: how plots are laid out side by side, and how their text is broken into lines."""

from __future__ import annotations

import itertools
import textwrap
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol, Self, TypeGuard

from ssm.figures.style import TITLE

if TYPE_CHECKING:
    from matplotlib.axes import Axes

ROOM = 6.3  # inches: height of a page without a legend and a note
LETTER = 0.085  # inches: width of a letter
UNBROKEN = "\u00a0"  # a space at which lines are not broken

Plotter = Callable[["Axes", int], object]  # draws on axes, given the number of columns of its row


class Sharing(Protocol):
    """A panel that can share a row with panels of other plots of its kind."""

    def __call__(self, axes: Axes, columns: int) -> None: ...

    def columns(self, panels: Sequence[Self]) -> int:
        """Number of these panels per row, this panel included."""

    def share_row(self, panels: Sequence[Self], height: float, columns: int) -> tuple[float, Sequence[Plotter]]:
        """Row height and panels, adapted to a shared row. `height` is the largest height of the single plots."""


@dataclass(frozen=True)
class Row:
    """Panels side by side. If there are fewer panels than `columns`, the rest of the row is empty."""

    height: float  # inches
    panels: Sequence[Plotter]
    columns: int
    note: str = ""  # meaning of lines and bands
    least: float | None = None  # inches: the lowest height at which it is legible; None: `height`


def heights(rows: Sequence[Row], room: float) -> list[float]:
    """The heights of the rows in a figure with `room` inches for them.

    If they do not fit, all rows become lower by the same share of what they can spare. If that is not enough, all have
    their lowest legible height, and the figure is higher than `room`.
    """
    wanted, least = [row.height for row in rows], [_least(row) for row in rows]
    if sum(wanted) <= room:
        return wanted
    if sum(least) >= room:
        return least
    share = (sum(wanted) - room) / (sum(wanted) - sum(least))
    return [high - share * (high - low) for high, low in zip(wanted, least, strict=True)]


def columns_for(panels: int) -> int:
    """Number of panels per row: at most three, so that a panel is legible on a phone."""
    return {0: 1, 1: 1, 2: 2, 4: 2}.get(panels, 3)


def in_rows(
    panels: Sequence[Plotter], columns: int, height: float, note: str = "", least: float | None = None
) -> list[Row]:
    """Panels in rows of `columns`. The other arguments are those of `Row`."""
    return [Row(height, panels[at : at + columns], columns, note, least) for at in range(0, len(panels), columns)]


def side_by_side(parts: Sequence[tuple[str, Sequence[Row]]]) -> list[Row]:
    """Rows of several plots, given (kind, rows) of each plot. Consecutive one-panel plots of one kind share rows.

    If another row has more panels, they do so only where the page needs it: all axes are aligned, and are pushed apart.
    """
    found: list[Row] = []
    most = max((row.columns for _, own in parts for row in own), default=1)
    crowded = sum(_least(row) for _, own in parts for row in own) > ROOM
    for (_, one_panel), group in itertools.groupby(parts, key=lambda part: (part[0], _one_panel(part[1]))):
        rows = [row for _, own in group for row in own]
        panels = [row.panels[0] for row in rows if _shares(row.panels[0])]
        columns = panels[0].columns(panels) if one_panel else 1
        if not one_panel or columns < (2 if crowded else max(2, most)):
            found += rows
            continue
        note = ". ".join(dict.fromkeys(row.note for row in rows if row.note))
        height, plotters = panels[0].share_row(panels, max(row.height for row in rows), columns)
        least = min(height, max(_least(row) for row in rows))
        found += in_rows(plotters, columns, height, note, least)
    return found


def wrapped(text: str, room: float, letter: float = LETTER) -> str:
    """Wrap a text into lines of `room` inches. Words that are longer stay whole, and so does "T = 64"."""
    letters = max(1, int(room / letter))
    whole = text.replace(" = ", f"{UNBROKEN}={UNBROKEN}")
    return textwrap.fill(whole, letters, break_long_words=False, break_on_hyphens=False).replace(UNBROKEN, " ")


def wrapped_title(title: str, room: float) -> str:
    """Wrap a title into lines of `room` inches, after commas if that is enough, otherwise between words."""
    letters, found = int(room / TITLE), []
    for line in title.split("\n"):
        parts = line.split(", ")
        kept = ", ".join(part.replace(" ", UNBROKEN) for part in parts) if max(map(len, parts)) < letters else line
        found += wrapped(kept, room, TITLE).splitlines() or [""]
    return "\n".join(found)


def _least(row: Row) -> float:
    """The lowest height at which a row is legible."""
    return row.height if row.least is None else row.least


def _one_panel(rows: Sequence[Row]) -> bool:
    return len(rows) == 1 and len(rows[0].panels) == 1 and _shares(rows[0].panels[0])


def _shares(panel: Plotter) -> TypeGuard[Sharing]:
    return hasattr(panel, "share_row")
