"""Draw a figure from its task and its tables: stack its plots, and write SVG, PNG and PDF."""

from __future__ import annotations

import io
import itertools
import math
import textwrap
from pathlib import Path

import matplotlib
import numpy as np
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.layout_engine import ConstrainedLayoutEngine
from matplotlib.lines import Line2D

from ssm.base.files import whole_file
from ssm.base.prose import plain
from ssm.figures.data import arms
from ssm.figures.figure import FigureTask
from ssm.figures.panel import Row, side_by_side
from ssm.figures.style import NORMAL, RC, SMALL, WIDTH, arm_styles

DPI = 200
LONGEST_DIRECT = 22  # characters of the longest label that is written next to its line
LINE = 1.25 * NORMAL / 72  # inches: height of a line of text
NOTE = 90  # characters per line of the note below a figure


def draw(task: FigureTask, tables: Path, out: Path) -> list[Path]:
    """Draw `task` from the tables in `tables` and write `out`/<target>.svg, .png and .pdf, each atomically.

    The same task and tables give the same SVG, byte for byte. It has a transparent background and real text. Its only
    neutral colors are `colors.INK` and `colors.GRID`, so that a page can replace them.

    Returns:
        The paths written.

    Raises:
        TableError: a table is missing or does not follow its schema.
        OutputError: `out` cannot be written.
    """
    target = task.figure.target
    paths = [out / f"{target}.{kind}" for kind in ("svg", "png", "pdf")]
    with matplotlib.rc_context(RC | {"svg.hashsalt": target}):
        figure = draw_figure(task, tables)
        with whole_file(paths[0]) as temporary:
            temporary.write_bytes(svg(figure, plain(task.figure.title)))
        with whole_file(paths[1]) as temporary:
            figure.savefig(temporary, format="png", dpi=DPI, facecolor="white", metadata={"Software": None})
        with whole_file(paths[2]) as temporary:
            dates = {"CreationDate": None, "ModDate": None}
            figure.savefig(temporary, format="pdf", facecolor="white", metadata=dates)
    return paths


def draw_figure(task: FigureTask, tables: Path) -> Figure:
    """The figure, before it is written."""
    with matplotlib.rc_context(RC):
        styles = arm_styles(arms(task), {one.arm: (one.family, one.axes) for one in task.series if one.family})
        rows = side_by_side([(one.kind, one.draw(task, tables, styles)) for one in task.figure.drawings])
        return compose(rows or [Row(1.2, [_nothing], 1)])


def compose(rows: list[Row], width: float = WIDTH) -> Figure:
    """Stack rows of panels into one figure, with their notes and a legend.

    Args:
        width: inches.
    """
    with matplotlib.rc_context(RC):
        figure = Figure(
            figsize=(width, sum(row.height for row in rows)), layout=ConstrainedLayoutEngine(w_pad=0.07, h_pad=0.06)
        )
        FigureCanvasAgg(figure)
        axes = _draw_on(figure, rows)
        note = ". ".join(dict.fromkeys(part for row in rows if row.note for part in row.note.split(". ")))
        if note:
            figure.supxlabel(textwrap.fill(note, int(NOTE * width / WIDTH)), fontsize=SMALL, x=0.995, ha="right")
        if not (all(row.columns == 1 for row in rows) and _label_ends(figure, axes)):
            _add_legend(figure, axes)
    return figure


def _draw_on(figure: Figure, rows: list[Row]) -> list[Axes]:
    """Lay out the rows on one grid, so that the axes of different rows are aligned."""
    columns = math.lcm(*(row.columns for row in rows))
    grid = figure.add_gridspec(len(rows), columns, height_ratios=[row.height for row in rows])
    drawn = []
    for place, row in enumerate(rows):
        span = columns // row.columns
        for column, draw_on in enumerate(row.panels):
            axes = figure.add_subplot(grid[place, column * span : (column + 1) * span])
            draw_on(axes, row.columns)
            drawn.append(axes)
    return drawn


def _label_ends(figure: Figure, all_axes: list[Axes]) -> bool:
    """Write every label at the end of its line. Write nothing and return False if labels would overlap."""
    places = []
    figure.draw_without_rendering()
    for axes in all_axes:
        ends = [(_end(axes, line), line) for line in _labelled(axes)]
        heights = sorted(end for end, _ in ends if end is not None)
        crowded = any(b - a < LINE * figure.dpi for a, b in itertools.pairwise(heights))
        if crowded or len(heights) < len(ends):
            return False
        places += [(axes, end, line) for end, line in ends if end is not None]
    if any(len(str(line.get_label())) > LONGEST_DIRECT for _, _, line in places):
        return False
    for axes, end, line in places:
        height = axes.transAxes.inverted().transform((0.0, end))[1]
        axes.annotate(
            str(line.get_label()),
            (1.0, height),
            xycoords="axes fraction",
            xytext=(6, 0),
            textcoords="offset points",
            va="center",
        )
    return True


def _end(axes: Axes, line: Line2D) -> float | None:
    """Height in pixels at which a line reaches the right edge of its axes; None if it does not."""
    x, y = (np.asarray(values, dtype=float) for values in line.get_data())
    left, right = axes.get_xlim()
    inside = np.flatnonzero(np.isfinite(y) & (x <= right) & (x >= left))
    if not inside.size:
        return None
    across, up = axes.transData.transform((x[inside[-1]], y[inside[-1]]))
    box = axes.bbox
    return float(up) if across > box.x0 + 0.9 * box.width and box.y0 <= up <= box.y1 else None


def _add_legend(figure: Figure, all_axes: list[Axes]) -> None:
    """Add one legend above all panels, with each arm once."""
    lines: dict[str, Line2D] = {}
    for line in itertools.chain.from_iterable(map(_labelled, all_axes)):
        lines.setdefault(str(line.get_label()), line)
    if not lines:
        return
    for columns in range(len(lines), 0, -1):
        rows = math.ceil(len(lines) / columns)
        if columns > math.ceil(len(lines) / rows):
            continue  # fewer columns need no more rows
        legend = figure.legend(list(lines.values()), list(lines), loc="outside upper left", ncols=columns)
        if columns == 1 or legend.get_window_extent().width <= (figure.get_figwidth() - 0.3) * figure.dpi:
            figure.set_figheight(figure.get_figheight() + LINE * rows + 0.1)
            return
        legend.remove()


def _labelled(axes: Axes) -> list[Line2D]:
    return [line for line in axes.lines if not str(line.get_label()).startswith("_")]


def _nothing(axes: Axes, columns: int) -> None:
    axes.set_axis_off()
    axes.text(0.5, 0.5, "This figure has no arm at this scale.", ha="center", va="center")


def svg(figure: Figure, title: str) -> bytes:
    """A figure as SVG with a transparent background, and with a title for screen readers."""
    metadata = dict.fromkeys(("Date", "Creator", "Format", "Type")) | {"Title": title}
    buffer = io.BytesIO()
    figure.savefig(buffer, format="svg", transparent=True, metadata=metadata)
    return buffer.getvalue()
