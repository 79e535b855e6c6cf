"""Recurrent systems as a printed table (ls Table 2, bn Appendix B)."""

from __future__ import annotations

import textwrap
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Literal

from ssm.base.lazy import textpath
from ssm.claims.series import PlannedFigure
from ssm.figures.colors import GRID, INK
from ssm.figures.data import own_table
from ssm.figures.plot import Plot
from ssm.figures.rows import Row
from ssm.figures.style import WIDTH, ArmStyle

if TYPE_CHECKING:
    from matplotlib.axes import Axes

LETTERS = 8.5  # points
LINE = 1.25 * LETTERS / 72  # inches: height of a line of text with subscripts and superscripts
CONTINUED = r"$\quad"  # start of a line that continues the formula above it
GAP = 0.35  # of a line: space below a system
HEADS = (  # head, left edge as a fraction of the width, characters per line
    ("system", 0.0, 17),
    ("recurrence", 0.165, 0),  # already broken into lines
    ("decay", 0.567, 16),
    ("state", 0.717, 14),
    ("measured", 0.868, 15),
)


class TaxonomyTable(Plot):
    """Recurrent systems as a table: their declared recurrence, and what was measured on the module."""

    kind: Literal["taxonomy_table"] = "taxonomy_table"
    reads: ClassVar[tuple[str, ...]] = ("taxonomy",)

    def draw(self, task: PlannedFigure, tables: Path, styles: dict[str, ArmStyle]) -> list[Row]:
        """A block of lines for each model, in the order of the taxonomy table."""
        frame = own_table(task, tables, "taxonomy")
        if frame is None:
            return []
        blocks = [_block(row) for row in frame.unique("model", maintain_order=True).iter_rows(named=True)]
        lines = 2.2 + sum(_lines(block) + GAP for block in blocks)
        return [Row(LINE * lines, [lambda axes, _: _draw(axes, blocks, lines)], 1)]


def _block(row: dict[str, Any]) -> list[list[str]]:
    """The cells of one system, each as a list of lines."""
    grows = row["state_numbers_late"] > row["state_numbers"]
    measured = ["state grows"] if grows else ["selective" if row["selective"] else "not selective"]
    if row["linear"] is False:
        measured.append("not linear")
    if row["identity"]:
        measured.append("$A_t=I$")
    cells = [
        [row["system"]],
        joined(row["recurrence"].split("\n"), WIDTH * (HEADS[2][1] - HEADS[1][1])),
        [row["decay"] + (", complex" if row["complex"] else "")],
        [row["state_shape"].replace(" x ", " × "), *(["a token"] if grows else [])],
        [", ".join(measured)],
    ]
    return [
        [line for text in cell for line in (textwrap.wrap(text, width) if width else [text])]
        for cell, (_, _, width) in zip(cells, HEADS, strict=True)
    ]


def joined(formulas: list[str], room: float) -> list[str]:
    """Lines of formulas, with two on one line where `room` inches are enough for both."""
    found: list[str] = []
    for formula in formulas:
        continued = formula.startswith(CONTINUED)
        both = f"{found[-1]} ${formula.removeprefix(CONTINUED)}" if continued else ",   ".join([*found[-1:], formula])
        formulas_only = bool(found) and found[-1].startswith("$") and formula.startswith("$")
        if formulas_only and formula_width(both) <= 0.94 * room:
            found[-1] = both
        else:
            found.append(formula)
    return found


def formula_width(formula: str) -> float:
    """The width of a formula in inches."""
    return float(textpath.TextPath((0, 0), formula, size=LETTERS).get_extents().width) / 72


def _lines(block: list[list[str]]) -> int:
    return max(map(len, block))


def _draw(axes: Axes, blocks: list[list[list[str]]], lines: float) -> None:
    axes.set_axis_off()
    axes.set_xlim(0, 1)
    axes.set_ylim(lines, 0)
    for head, left, _ in HEADS:
        axes.text(left, 1.2, head, weight="bold", va="bottom", fontsize=LETTERS)
    axes.plot([0, 1], [1.5, 1.5], color=INK, linewidth=1.2)
    place = 2.1
    for block in blocks:
        for (_, left, _), cell in zip(HEADS, block, strict=True):
            for number, text in enumerate(cell):
                axes.text(left, place + number, text, va="center", fontsize=LETTERS)
        place += _lines(block) + GAP
        axes.plot([0, 1], [place - 0.5 - GAP / 2, place - 0.5 - GAP / 2], color=GRID, linewidth=0.7)
