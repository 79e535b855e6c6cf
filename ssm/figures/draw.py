"""Draw a figure from its task and its tables: stack its plots, and write SVG, PNG and PDF."""

from __future__ import annotations

import io
import itertools
import math
import textwrap
from collections.abc import Callable
from copy import copy
from pathlib import Path
from typing import Any

import matplotlib
import numpy as np
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.layout_engine import ConstrainedLayoutEngine
from matplotlib.lines import Line2D

from ssm.base.files import atomic_file
from ssm.base.prose import plain
from ssm.base.records import PICTURES
from ssm.figures.data import arms
from ssm.figures.figure import FigureTask
from ssm.figures.panel import ABSENT
from ssm.figures.rows import Row, heights, side_by_side, wrapped, wrapped_title
from ssm.figures.style import LARGE, NORMAL, RC, SMALL, TITLE, WIDTH, arm_styles

DPI = 200
PAGE = 8.0  # inches: the height of a page, 1,600 pixels
BESIDE, BETWEEN = 0.5, 0.25  # inches: space left of the axes of a panel, and between labels of two panels
ALIGNED, FINEST = 4, 6  # most panels of a row, and columns of the common grid, so that rows are aligned
LONGEST_DIRECT = 22  # characters of the longest label that is written next to its line
LINE = 1.25 * NORMAL / 72  # inches: height of a line of text
NOTE = 90  # characters per line of the note below a figure
NOTE_LINE = 1.25 * SMALL / 72  # inches: height of a line of the note


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
    target = task.target
    paths = [out / f"{target}.{kind}" for kind in PICTURES]
    with matplotlib.rc_context(RC | {"svg.hashsalt": target}):
        figure = draw_figure(task, tables)
        with atomic_file(paths[0]) as temporary:
            temporary.write_bytes(svg(figure, plain(task.figure.title)))
        with atomic_file(paths[1]) as temporary:
            figure.savefig(temporary, format="png", dpi=DPI, facecolor="white", metadata={"Software": None})
        with atomic_file(paths[2]) as temporary:
            dates = {"CreationDate": None, "ModDate": None}
            figure.savefig(temporary, format="pdf", facecolor="white", metadata=dates)
    return paths


def draw_figure(task: FigureTask, tables: Path) -> Figure:
    """The figure, before it is written."""
    with matplotlib.rc_context(RC):
        return compose(stacked(task, tables))


def stacked(task: FigureTask, tables: Path) -> list[Row]:
    """The rows of all plots of a figure, from top to bottom."""
    places = {one.arm: (one.family, one.axes) for one in task.series if one.family}
    lines = {arm for plot in task.figure.drawings for arm in plot.in_legend(task)}
    styles = arm_styles(arms(task), places, named={arm for arm in arms(task) if arm not in lines})
    rows = side_by_side([(one.kind, one.draw(task, tables, styles)) for one in task.figure.drawings])
    return rows or [Row(1.2, [_nothing], 1)]


def compose(rows: list[Row], width: float = WIDTH) -> Figure:
    """Stack rows of panels into one figure, with their notes and a legend.

    It is at most `PAGE` inches high, unless its rows would be too low to read.

    Args:
        width: inches.
    """
    with matplotlib.rc_context(RC):
        figure = Figure(figsize=(width, PAGE), layout=ConstrainedLayoutEngine(w_pad=0.07, h_pad=0.06))
        FigureCanvasAgg(figure)
        set_heights, drawn = _draw_on(figure, rows)
        _say_once(drawn)
        for row, own in zip(rows, drawn, strict=True):
            _wrap(own, width / row.columns)
        sides = [[axes.get_ylabel() for axes in own] for own in drawn]  # before they are broken into lines
        lines = textwrap.wrap(_note(rows), int(NOTE * width / WIDTH))
        if lines:
            figure.supxlabel("\n".join(lines), fontsize=SMALL, x=0.995, ha="right")

        def fit(legend: float) -> None:
            """Set the heights of the figure and of its rows, given the height of the legend."""
            around = legend + NOTE_LINE * len(lines)
            found = heights(rows, PAGE - around)
            set_heights(found)
            for own, labels, height in zip(drawn, sides, found, strict=True):
                for axes, label in zip(own, labels, strict=True):
                    axes.set_ylabel(_broken(label, height))
            figure.set_figheight(sum(found) + around)

        fit(0.0)
        axes = list(itertools.chain.from_iterable(drawn))
        table = not all(one.axison for one in axes)  # it needs the width
        direct = all(row.columns == 1 for row in rows) and not table
        if not (direct and _label_ends(figure, axes)):
            fit(_add_legend(figure, axes))
        _settle(figure)
    return figure


def _settle(figure: Figure) -> None:
    """Lay the figure out for the last time. The last bits of the solver's result are not always the same."""
    layout = figure.get_layout_engine()
    assert layout is not None
    layout.execute(figure)
    figure.set_layout_engine("none")
    for axes in figure.axes:
        left, bottom, width, height = axes.get_position().bounds
        axes.set_position((round(left, 6), round(bottom, 6), round(width, 6), round(height, 6)))


def _note(rows: list[Row]) -> str:
    """The notes of all rows, each part once. If "Line" has two meanings, the note has both: "Line: ... or ..."."""
    meanings: dict[str, dict[str, None]] = {}
    for part in (part for row in rows if row.note for part in row.note.split(". ")):
        what, _, meaning = part.partition(": ")
        meanings.setdefault(what, {})[meaning] = None
    return ". ".join(what + f": {' or '.join(found)}" * any(found) for what, found in meanings.items())


def _draw_on(figure: Figure, rows: list[Row]) -> tuple[Callable[[list[float]], None], list[list[Axes]]]:
    """Lay out the rows. Returns a function that sets their heights, and the axes of each row.

    The rows have one grid, so that the axes of different rows are aligned. If a row has many panels, or the common grid
    has many columns, only rows with equal columns share a grid. Otherwise labels would leave no room for the axes. Rows
    of a fixed height have their own grid, so that labels of other rows take no part of it.
    """
    counts = {row.columns for row in rows}
    apart = max(counts) > ALIGNED or math.lcm(*counts) > FINEST
    groups = [list(group) for _, group in itertools.groupby(rows, lambda row: (row.least is None, row.columns * apart))]
    outer = figure.add_gridspec(len(groups), 1) if len(groups) > 1 else None
    grids, drawn = [], []
    for place, group in enumerate(groups):
        columns = math.lcm(*(row.columns for row in group))
        shape = len(group), columns
        grid = figure.add_gridspec(*shape) if outer is None else outer[place, 0].subgridspec(*shape)
        grids.append(grid)
        for line, row in enumerate(group):
            span = columns // row.columns
            own = [figure.add_subplot(grid[line, at * span : (at + 1) * span]) for at in range(len(row.panels))]
            for axes, draw_on in zip(own, row.panels, strict=True):
                draw_on(axes, row.columns)
            drawn.append(own)

    def set_heights(found: list[float]) -> None:
        left = iter(found)
        parts = [list(itertools.islice(left, len(group))) for group in groups]
        for grid, part in zip(grids, parts, strict=True):
            grid.set_height_ratios(part)
        if outer is not None:
            outer.set_height_ratios([sum(part) for part in parts])

    return set_heights, drawn


def _say_once(drawn: list[list[Axes]]) -> None:
    """Leave out titles that repeat those beside or above them, and the labels of an x axis that is also below.

    A first line that all titles of a row share is written once, above the first panel.
    """
    titles = [[axes.get_title(loc="left") for axes in row] for row in drawn]
    scales = [
        [(axes.get_xlabel(), axes.get_xscale(), axes.get_xlim(), tuple(axes.get_xticks())) for axes in row]
        for row in drawn
    ]
    heads: set[str] = set()  # first lines of the titles of the row above
    for place, row in enumerate(drawn):
        above, below = max(place - 1, 0), place + 1
        one = len({*titles[place], *titles[above]}) == 1  # all panels here and above have the same title
        blank = not "".join(titles[place]).strip()  # the panels leave room for titles of their own
        repeated = place > 0 and not blank and (one or (titles[place] == titles[above] and _aligned(row, drawn[above])))
        hidden = below < len(drawn) and scales[place] == scales[below] and _aligned(row, drawn[below])
        lines = [title.split("\n") for title in titles[place]]
        shared = not blank and len({(own[0], len(own)) for own in lines}) == 1
        said = place > 0 and shared and len(lines[0]) > 1 and {own[0] for own in lines} == heads
        heads = {title.split("\n")[0] for title in titles[place]}
        for number, axes in enumerate(row):
            if repeated:
                axes.set_title("", loc="left")
            elif said:
                axes.set_title("\n".join(lines[number][1:]), loc="left")
            elif number > 0 and shared:
                axes.set_title("\n".join(["", *lines[number][1:]]), loc="left")
            if hidden and axes.get_xlabel():
                axes.set_xlabel("")
                axes.tick_params(labelbottom=False)


def _wrap(row: list[Axes], width: float) -> None:
    """Break titles and labels below panels into lines that fit panels of this width, inches."""
    firsts = [axes.get_title(loc="left").split("\n")[0] for axes in row]
    for number, axes in enumerate(row):
        beside = next((place for place in range(number + 1, len(row)) if firsts[place]), len(row))
        first, *rest = axes.get_title(loc="left").split("\n")
        lines = [part for line in rest for part in wrapped_title(line, width - BESIDE).split("\n")]
        heading = wrapped_title(first, (beside - number) * width - BESIDE)
        if "\n" not in heading and TITLE * len(heading) > width - BESIDE:
            _write_over(axes, heading, len(lines))
            heading = " "  # keeps its height
        axes.set_title("\n".join([heading, *lines]), loc="left")
        axes.set_xlabel(_broken(axes.get_xlabel(), width))


def _broken(label: str, room: float) -> str:
    """A label, broken into lines that fit the side of a panel of `room` inches."""
    return "\n".join(wrapped(line, room - BETWEEN) for line in label.split("\n"))


def _write_over(axes: Axes, heading: str, above: int) -> None:
    """Write a heading over this panel and those beside it, above a title of so many lines. It takes no width."""
    place: Any = {"xycoords": "axes fraction", "textcoords": "offset points"}
    pad = matplotlib.rcParams["axes.titlepad"] + 1.2 * LARGE * above
    text = axes.annotate(heading, (0.0, 1.0), xytext=(0.0, pad), fontsize=LARGE, fontweight="bold", **place)
    text.set_in_layout(False)


def _aligned(one: list[Axes], other: list[Axes]) -> bool:
    """Whether the panels of two rows are below each other."""

    def columns(row: list[Axes]) -> list[tuple[int, int]]:
        specs = [axes.get_subplotspec() for axes in row]
        return [(spec.colspan.start, spec.colspan.stop) for spec in specs if spec is not None]

    return columns(one) == columns(other)


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


def _add_legend(figure: Figure, all_axes: list[Axes]) -> float:
    """Add one legend above all panels, with each arm once. Returns its height in inches.

    Its marker is as large as in the panel where it is largest: small panels draw lines without markers. An arm that
    diverged, or has no number, in some panels has all their titles after its name.
    """
    found: dict[str, Line2D] = {}
    panels: dict[str, dict[str, list[str]]] = {}  # arm -> why it is absent in some panels -> their titles
    for line in itertools.chain.from_iterable(map(_labelled, all_axes)):
        name, *absent = ABSENT.split(str(line.get_label()))
        known = found.setdefault(name, line)
        if known.get_markersize() < line.get_markersize():
            found[name] = copy(known)
            found[name].set_markersize(line.get_markersize())
        own = panels.setdefault(name, {})
        if absent:
            own.setdefault(absent[0], []).append(absent[1])
    lines = {
        name + "".join(f" ({why}: {', '.join(dict.fromkeys(titles))})" for why, titles in own.items()): found[name]
        for name, own in panels.items()
    }
    for columns in range(len(lines), 0, -1):
        rows = math.ceil(len(lines) / columns)
        if columns > math.ceil(len(lines) / rows):
            continue  # fewer columns need no more rows
        legend = figure.legend(list(lines.values()), list(lines), loc="outside upper left", ncols=columns)
        if columns == 1 or legend.get_window_extent().width <= (figure.get_figwidth() - 0.2) * figure.dpi:
            return LINE * rows + 0.1
        legend.remove()
    return 0.0


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
