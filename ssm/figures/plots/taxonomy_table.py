"""Recurrent systems as a printed table (ls Table 2, bn Appendix B)."""

from __future__ import annotations

import shlex
import textwrap
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Literal

from ssm.base.errors import TableError
from ssm.claims.series import PlannedFigure
from ssm.claims.snakemake_command import snakemake_command
from ssm.figures.colors import GRID, INK
from ssm.figures.data import own_table
from ssm.figures.panel import Row
from ssm.figures.plot import Plot
from ssm.figures.style import SMALL, ArmStyle

if TYPE_CHECKING:
    from matplotlib.axes import Axes

LINE = 0.18  # inches: height of a line of text with subscripts and superscripts
HEADS = (  # head, left edge as a fraction of the width, characters per line
    ("system", 0.0, 13),
    ("recurrence", 0.15, 0),  # already broken into lines
    ("decay", 0.555, 12),
    ("state", 0.695, 12),
    ("measured", 0.86, 13),
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
        if not frame["recurrence"].str.contains("$", literal=True).all():
            old = [shlex.quote(str(tables / f"{name}.parquet")) for name in task.own_tables("taxonomy")]
            again = snakemake_command(f"{task.target} --config scale={task.scale}")
            raise TableError(f"{old[0]}: made by an earlier version of ssm; type `rm {' '.join(old)} && {again}`")
        blocks = [_block(row) for row in frame.unique("model", maintain_order=True).iter_rows(named=True)]
        lines = 3 + sum(_lines(block) + 0.6 for block in blocks)
        return [Row(LINE * lines, [lambda axes, _: _draw(axes, blocks, lines)], 1)]


def _block(row: dict[str, Any]) -> list[list[str]]:
    """The cells of one system, each as a list of lines."""
    grows = row["state_numbers_late"] > row["state_numbers"]
    measured = ["state grows"] if grows else ["selective" if row["selective"] else "not selective"]
    if row["linear"] is False:
        measured.append("not linear")
    if row["identity"]:
        measured.append("$A_t = I$")
    cells = [
        [row["system"]],
        row["recurrence"].split("\n"),
        [row["decay"], *(["complex"] if row["complex"] else [])],
        [row["state_shape"].replace(" x ", " × "), *(["a token"] if grows else [])],
        measured,
    ]
    return [
        [line for text in cell for line in (textwrap.wrap(text, width) if width else [text])]
        for cell, (_, _, width) in zip(cells, HEADS, strict=True)
    ]


def _lines(block: list[list[str]]) -> int:
    return max(map(len, block))


def _draw(axes: Axes, blocks: list[list[list[str]]], lines: float) -> None:
    axes.set_axis_off()
    axes.set_xlim(0, 1)
    axes.set_ylim(lines, 0)
    for head, left, _ in HEADS:
        axes.text(left, 1.2, head, weight="bold", va="bottom", fontsize=SMALL)
    axes.plot([0, 1], [1.5, 1.5], color=INK, linewidth=1.2)
    place = 2.3
    for block in blocks:
        for (_, left, _), cell in zip(HEADS, block, strict=True):
            for number, text in enumerate(cell):
                axes.text(left, place + number, text, va="center", fontsize=SMALL)
        place += _lines(block) + 0.6
        axes.plot([0, 1], [place - 0.8, place - 0.8], color=GRID, linewidth=0.7)
