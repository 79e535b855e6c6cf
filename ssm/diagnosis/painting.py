"""What stands on a diagnosis's pictures beside curves: names of lines, failures, intervals, grids of recall."""

from __future__ import annotations

from collections.abc import Sequence

import matplotlib
import numpy as np
from matplotlib.axes import Axes
from matplotlib.patches import Rectangle

from ssm.diagnosis.result import Interval, Recall
from ssm.figures.colors import INK
from ssm.figures.panel import Painter
from ssm.figures.style import SMALL, tokens


def name_context(axes: Axes, context: int) -> None:
    """Left of the line at T: what begins beyond it needs the room on its right."""
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


def mark_failure(axes: Axes, failure: Interval, text: str, color: str, number: int) -> None:
    left, right = axes.get_xlim()
    low, high = max(left, failure.low), min(right, failure.high)
    axes.axvspan(low, high, color=color, alpha=0.14, linewidth=0, zorder=1)
    axes.axvline(failure.value, color=color, linewidth=1.2, zorder=2)
    beyond = np.log(failure.value / left) > 0.6 * np.log(right / left)  # the text stands on the side that has room
    axes.annotate(
        text,
        (failure.value, 0.9 - 0.075 * number),
        xycoords=("data", "axes fraction"),
        xytext=(-4 if beyond else 4, 0),
        textcoords="offset points",
        ha="right" if beyond else "left",
        va="top",
        fontsize=SMALL,
        zorder=5,
    )


def paint_intervals(axes: Axes, ratios: dict[int, Interval]) -> None:
    """The ratios that decide, with their common interval, in the middle of their quarter."""
    known = [(0.875 * end, ratio) for end, ratio in ratios.items() if np.isfinite([ratio.value, ratio.high]).all()]
    if not known:
        return
    value = np.array([ratio.value for _, ratio in known])
    ends = np.array([[ratio.value - ratio.low, ratio.high - ratio.value] for _, ratio in known]).T  # (2, ratios)
    axes.errorbar([x for x, _ in known], value, ends, fmt="none", ecolor=INK, elinewidth=1.4, capsize=4, zorder=4)


def recall_grid(title: str, cells: Sequence[Recall], context: int, what: str) -> Painter:
    lengths, depths = (sorted({getattr(cell, name) for cell in cells}) for name in ("length", "depth"))

    def painter(axes: Axes, columns: int) -> None:
        axes.grid(False)
        for cell in cells:
            _cell(axes, cell, lengths.index(cell.length), depths.index(cell.depth))
        axes.set_xlim(0, len(lengths))
        axes.set_ylim(len(depths), 0)
        axes.set_xticks(np.arange(len(lengths)) + 0.5, [tokens(length) for length in lengths])
        axes.set_yticks(np.arange(len(depths)) + 0.5, [f"{depth:.0%}" for depth in depths])
        axes.tick_params(length=0)
        axes.spines[:].set_visible(False)
        inside = sum(length <= context for length in lengths)
        bordered = 0 < inside < len(lengths)
        if bordered:
            axes.axvline(inside, color=INK, linewidth=1.6)
        axes.set_title(title)
        axes.set_xlabel("length (tokens)" + ("; line: the context" if bordered else ""))
        axes.set_ylabel(f"depth of the {what}")

    return painter


def _cell(axes: Axes, cell: Recall, column: int, row: int) -> None:
    value = cell.accuracy.value
    color = matplotlib.colormaps["viridis"](0.12 + 0.78 * value)
    axes.add_patch(Rectangle((column + 0.03, row + 0.05), 0.94, 0.9, facecolor=color, linewidth=0))
    ink = "#000000" if value > 0.55 else "#ffffff"
    axes.text(column + 0.5, row + 0.5, f"{value:.0%}", color=ink, ha="center", va="center", fontsize=SMALL)
