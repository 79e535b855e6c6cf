"""Elements of a diagnosis's plots: names of lines, failure positions, intervals, and grids."""

from __future__ import annotations

from collections.abc import Sequence

import matplotlib
import numpy as np
from matplotlib.axes import Axes
from matplotlib.collections import PatchCollection
from matplotlib.colors import LogNorm
from matplotlib.patches import Rectangle

from ssm.claims.words import number
from ssm.diagnosis.result import HeadMap, Interval, Recall, Solved
from ssm.figures.colors import INK
from ssm.figures.rows import Plotter
from ssm.figures.style import SMALL, tokens

LEAST_SCALE = 4.0  # growth: the lightest color is at least this much


def name_context(axes: Axes, context: int) -> None:
    """Name the line at T, on its left: the curves need the space on its right."""
    axes.annotate(
        f"T = {tokens(context)}",
        (context, 1.0),
        xycoords=("data", "axes fraction"),
        xytext=(-4, -2),
        textcoords="offset points",
        ha="right",
        va="top",
        fontsize=SMALL,
        zorder=5,
    )


def name_level(axes: Axes, level: float, text: str) -> None:
    axes.annotate(
        text,
        (0.0, level),
        xycoords=("axes fraction", "data"),
        xytext=(3, 3),
        textcoords="offset points",
        fontsize=SMALL,
    )


def mark_failure(axes: Axes, failure: Interval, text: str, color: str, line: int) -> None:
    left, right = axes.get_xlim()
    low, high = max(left, failure.low), min(right, failure.high)
    axes.axvspan(low, high, color=color, alpha=0.14, linewidth=0, zorder=1)
    axes.axvline(failure.value, color=color, linewidth=1.2, zorder=2)
    beyond = np.log(failure.value / left) > 0.6 * np.log(right / left)  # put the text on the side with more space
    axes.annotate(
        text,
        (failure.value, 0.9 - 0.075 * line),
        xycoords=("data", "axes fraction"),
        xytext=(-4 if beyond else 4, 0),
        textcoords="offset points",
        ha="right" if beyond else "left",
        va="top",
        fontsize=SMALL,
        zorder=5,
    )


def draw_intervals(axes: Axes, ratios: dict[int, Interval]) -> None:
    """The ratios that decide with their joint intervals, in the middle of their quarters."""
    known = [(0.875 * end, ratio) for end, ratio in ratios.items() if np.isfinite([ratio.value, ratio.high]).all()]
    if not known:
        return
    value = np.array([ratio.value for _, ratio in known])
    ends = np.array([[ratio.value - ratio.low, ratio.high - ratio.value] for _, ratio in known]).T  # (2, ratios)
    axes.errorbar([x for x, _ in known], value, ends, fmt="none", ecolor=INK, elinewidth=1.4, capsize=4, zorder=4)


def recall_grid(title: str, cells: Sequence[Recall], context: int, what: str) -> Plotter:
    depths = sorted({cell.depth for cell in cells})
    placed = [(cell.length, depths.index(cell.depth), cell.accuracy.value) for cell in cells]
    return _grid(title, placed, [f"{depth:.0%}" for depth in depths], context, f"depth of the {what}")


def solved_grid(title: str, cells: Sequence[Solved], context: int) -> Plotter:
    tasks = list(dict.fromkeys(cell.task for cell in cells))
    placed = [(cell.length, tasks.index(cell.task), cell.accuracy.value) for cell in cells]
    return _grid(title, placed, tasks, context, "")


def _grid(
    title: str, cells: Sequence[tuple[int, int, float]], rows: Sequence[str], context: int, label: str
) -> Plotter:
    """A grid of shares.

    Args:
        cells: (length, number of the row, share) each.
    """
    lengths = sorted({length for length, *_ in cells})

    def painter(axes: Axes, columns: int) -> None:
        axes.grid(False)
        for length, row, value in cells:
            _cell(axes, value, lengths.index(length), row)
        axes.set_xlim(0, len(lengths))
        axes.set_ylim(len(rows), 0)
        axes.set_xticks(np.arange(len(lengths)) + 0.5, [tokens(length) for length in lengths])
        axes.set_yticks(np.arange(len(rows)) + 0.5, rows)
        axes.tick_params(length=0)
        axes.spines[:].set_visible(False)
        inside = sum(length <= context for length in lengths)
        bordered = 0 < inside < len(lengths)
        if bordered:
            axes.axvline(inside, color=INK, linewidth=1.6)
        axes.set_title(title)
        axes.set_xlabel("length (tokens)" + ("; line: the context" if bordered else ""))
        axes.set_ylabel(label)

    return painter


def head_grid(title: str, shown: HeadMap, all_maps: Sequence[HeadMap]) -> Plotter:
    """The growth of every head as a color. A point: the head drifts. A cross: its state is no longer a number.

    Args:
        all_maps: the maps that share the color scale.
    """
    known = np.array([value for heads in all_maps for row in heads.growth for value in row])
    highest = max(LEAST_SCALE, float(known[np.isfinite(known)].max(initial=0.0)))
    scale = LogNorm(1.0, highest, clip=True)
    width = max(map(len, shown.growth))

    def painter(axes: Axes, columns: int) -> None:
        axes.grid(False)
        cells, growth = [], []
        marks: dict[tuple[str, float, str], list[tuple[float, float]]] = {}  # by look; one artist per head is slow
        for row, (values, drifting) in enumerate(zip(shown.growth, shown.drifting, strict=True)):
            for column, (value, drifts) in enumerate(zip(values, drifting, strict=True)):
                lost = drifts and not np.isfinite(value)
                if np.isfinite(value) or lost:
                    cells.append(Rectangle((column, row), 0.96, 0.94))
                    growth.append(highest if lost else value)
                if drifts:
                    ink = "#000000" if scale(growth[-1]) > 0.55 else "#ffffff"
                    look = ("x", 4.0, ink) if lost else (".", 3.5, ink)
                    marks.setdefault(look, []).append((column + 0.48, row + 0.47))
        axes.add_collection(PatchCollection(cells, array=growth, cmap="viridis", norm=scale, linewidths=0))
        for (mark, size, ink), places in marks.items():
            x, y = zip(*places, strict=True)
            axes.plot(x, y, mark, color=ink, markersize=min(size, 220 / width))
        axes.set_xlim(0, width)
        axes.set_ylim(0, len(shown.layers))
        for ticks, names, most in (
            (axes.set_xticks, [column * shown.together for column in range(width)], 16),
            (axes.set_yticks, shown.layers, 12),
        ):
            step = -(-len(names) // most)
            ticks(np.arange(0, len(names), step) + 0.5, [str(name) for name in names[::step]])
        axes.tick_params(length=0)
        axes.spines[:].set_visible(False)
        axes.set_title(title)
        together = f" ({shown.together} to a column: the one that grows most)" if shown.together > 1 else ""
        axes.set_xlabel(f"head{together}\ndark to light: 1 or less to {number(highest)} times; point: drifts")
        axes.set_ylabel("layer")

    return painter


def _cell(axes: Axes, value: float, column: int, row: int) -> None:
    color = matplotlib.colormaps["viridis"](0.12 + 0.78 * value)
    axes.add_patch(Rectangle((column + 0.03, row + 0.05), 0.94, 0.9, facecolor=color, linewidth=0))
    ink = "#000000" if value > 0.55 else "#ffffff"
    axes.text(column + 0.5, row + 0.5, f"{value:.0%}", color=ink, ha="center", va="center", fontsize=SMALL)
