"""A quantity of each arm as a printed table of numbers."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from ssm.base.counting import short
from ssm.claims.series import PlannedFigure
from ssm.figures.colors import GRID, INK
from ssm.figures.data import chosen_arms, panels
from ssm.figures.panel import seeds_of
from ssm.figures.plot import ChosenArms, Numbers, Variants
from ssm.figures.rows import LETTER, Row, wrapped
from ssm.figures.style import SMALL, WIDTH, ArmStyle

if TYPE_CHECKING:
    from matplotlib.axes import Axes

LINE = 0.19  # inches: height of a line of text
GAP = 0.35  # of a line: space below a row
LEAST = 1.0  # inches: the least width of the names
BOLD = 1.15  # width of a bold letter, relative to a plain one
ROOM = WIDTH - 0.9  # inches: width of a table above panels with labels on their left


@dataclass(frozen=True)
class TableRow:
    """A line of the table: the numbers of an arm, or the name of a model above its arms."""

    name: str
    cells: tuple[Numbers | None, ...]  # none: not measured; empty: a heading


class Table(ChosenArms, Variants):
    """The quantity `of` as a table: a row for each model and arm, a column for each variant.

    A cell is the mean over seeds, with the standard deviation over seeds.
    """

    kind: Literal["table"] = "table"
    head: str = ""  # head of the names
    percent: bool = False  # true: the numbers are shares; show them in percent

    def draw(self, task: PlannedFigure, tables: Path, styles: dict[str, ArmStyle]) -> list[Row]:
        """One table. With several models and arms, the name of a model is above its arms."""
        columns = self.variants()
        labels = {series.arm: series.label for series in task.series}
        wanted, models = chosen_arms(task, self.arms), panels(task)
        rows: list[TableRow] = []
        for model in models:
            found = {arm: tuple(part.numbers(arm, task, tables, model) for part in columns.values()) for arm in wanted}
            there = {arm: cells for arm, cells in found.items() if any(cell is not None for cell in cells)}
            if there and len(models) > 1 and len(wanted) > 1:
                rows.append(TableRow(task.title_of(model), ()))
            alone = len(models) > 1 and len(wanted) == 1
            rows += [TableRow(task.name_of(model) if alone else labels[arm], cells) for arm, cells in there.items()]
        if not rows:
            return []
        seeds = [len(cell.seeds) for row in rows for cell in row.cells if cell is not None]
        note = f"Mean over {seeds_of(seeds)} ± their standard deviation" if max(seeds) > 1 else "One seed"
        note += ". In percent" if self.percent else ""
        printed = Printed.of(self, rows, tuple(name or self.score for name in columns))
        return [Row(LINE * printed.lines, [lambda axes, _: printed.draw(axes)], 1, note)]


@dataclass(frozen=True)
class Printed:
    """The words of a table, broken into lines."""

    heads: tuple[tuple[str, ...], ...]  # lines of each head, the names' first
    rows: tuple[tuple[tuple[str, ...], ...], ...]  # lines of each cell of each row; a heading has one cell
    names: float  # inches: width of the column of names

    @classmethod
    def of(cls, plot: Table, rows: list[TableRow], heads: tuple[str, ...]) -> Printed:
        """Break heads and names where they do not fit, and the spread below the mean if columns are narrow."""
        texts = [[_text(cell, plot.percent) for cell in row.cells] for row in rows]
        longest = max(len(line.name) for line in rows if line.cells)
        words = [BOLD * len(word) for head in heads for word in head.split()]
        needed = max([*words, *(len(line) for cells in texts for cell in cells for line in cell)]) + 1
        names = max(LEAST, min(LETTER * (longest + 2), ROOM - LETTER * needed * len(heads)))
        room = (ROOM - names) / len(heads)
        beside = all(LETTER * (len(" ".join(cell)) + 0.5) <= room for cells in texts for cell in cells)
        printed: list[tuple[tuple[str, ...], ...]] = []
        for row, cells in zip(rows, texts, strict=True):
            name = tuple(wrapped(row.name, names).splitlines()) if row.cells else (row.name,)
            printed.append((name, *((" ".join(cell),) if beside else cell for cell in cells)))
        top = (plot.head, *heads)
        rooms = [names, *[room - LETTER] * len(heads)]
        broken = [tuple(wrapped(head, width).splitlines()) for head, width in zip(top, rooms, strict=True)]
        return cls(tuple(broken), tuple(printed), names)

    @property
    def lines(self) -> float:
        """The height of the table, in lines."""
        return 0.8 + max(map(len, self.heads)) + sum(max(map(len, row)) + GAP for row in self.rows)

    def draw(self, axes: Axes) -> None:
        """Print the table on `axes`, which has its height."""
        axes.set_axis_off()
        axes.set_xlim(0, 1)
        axes.set_ylim(self.lines, 0)
        share = self.names / ROOM
        edges = [share + (1 - share) * (i + 1) / (len(self.heads) - 1) for i in range(len(self.heads) - 1)]
        top = max(map(len, self.heads)) + 0.2
        for head, edge in zip(self.heads, [0.0, *edges], strict=True):
            side = "left" if edge == 0.0 else "right"
            axes.text(edge, top, "\n".join(head), weight="bold", ha=side, va="bottom", fontsize=SMALL)
        axes.plot([0, 1], [top + 0.2, top + 0.2], color=INK, linewidth=1.2)
        place = top + 0.2 + GAP
        for row in self.rows:
            lines = max(map(len, row))
            weight = "bold" if len(row) == 1 else "normal"
            for cell, edge in zip(row, [0.0, *edges], strict=False):
                side = "left" if edge == 0.0 else "right"
                for below, line in enumerate(cell):
                    axes.text(edge, place + below + 0.5, line, ha=side, va="center", fontsize=SMALL, weight=weight)
            place += lines + GAP
            axes.plot([0, 1], [place - GAP / 2, place - GAP / 2], color=GRID, linewidth=0.7)
        for text in axes.texts:
            text.set_in_layout(False)  # other panels keep their width


def _text(cell: Numbers | None, percent: bool) -> tuple[str, ...]:
    """The mean, and the spread if there are several seeds."""
    if cell is None:
        return ("–",)
    mean, *_ = cell.summary()
    if not len(cell.seeds):
        return ("no number",)
    if len(cell.seeds) == 1:
        return (_number(mean, percent),)
    return (_number(mean, percent), f"± {_number(float(cell.seeds.std(ddof=1)), percent)}")


def _number(value: float, percent: bool) -> str:
    if percent:
        return f"{100 * value:.1f}"
    return short(value) if abs(value) >= 100 else f"{value:.2f}"
