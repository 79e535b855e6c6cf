"""Time and memory of a step by length: a panel for each quantity, a curve for each model (ls Table 1)."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar, Literal

from ssm.base.counting import short
from ssm.base.lazy import polars as pl
from ssm.base.lazy import ticker
from ssm.claims.series import PlannedFigure
from ssm.figures.data import own_table
from ssm.figures.plot import Plot
from ssm.figures.rows import Row, in_rows
from ssm.figures.style import ArmStyle, log_ticks, tokens, unordered

if TYPE_CHECKING:
    from matplotlib.axes import Axes

PANELS = (  # cost, title, unit of the axis, factor from the table's unit to it
    ("training_step", "Training step", "ms", 1e3),
    ("training_memory", "Memory for its backward pass", "MB", 1e-6),
    ("decoding_step", "Decoding step after T tokens", "ms", 1e3),
    ("state", "State after T tokens", "kB", 1e-3),
)
HEIGHT = 2.6  # inches


class CostCurves(Plot):
    """Time and memory of a step by length: a panel for each quantity, a curve for each model."""

    kind: Literal["cost_curves"] = "cost_curves"
    reads: ClassVar[tuple[str, ...]] = ("cost",)

    def draw(self, task: PlannedFigure, tables: Path, styles: dict[str, ArmStyle]) -> list[Row]:
        """Two rows of two panels: the median over repeats, with their range as a bar."""
        frame = own_table(task, tables, "cost")
        if frame is None:
            return []
        plotters = [partial(_draw_on, frame, task, *panel) for panel in PANELS]
        return in_rows(plotters, 2, HEIGHT, "Line: median over timed steps. Bar: their range. One sequence per step")


def _draw_on(
    frame: pl.DataFrame, task: PlannedFigure, cost: str, title: str, unit: str, scale: float, axes: Axes, columns: int
) -> None:
    models = frame["model"].unique(maintain_order=True).to_list()
    lengths = frame["length"].unique().sort().to_list()
    for model, style in unordered(models).items():
        points = (
            frame.filter(pl.col("model") == model, pl.col("cost") == cost)
            .group_by("length")
            .agg(
                pl.col("value").median().alias("middle"),
                pl.col("value").min().alias("low"),
                pl.col("value").max().alias("high"),
            )
            .sort("length")
        )
        x, y, low, high = ((points[name] * (scale if name != "length" else 1)).to_numpy() for name in points.columns)
        axes.plot(x, y, label=task.title_of(model), zorder=3, **style.keywords())
        axes.vlines(x, low, high, color=style.color, linewidth=1.0, zorder=2)
    axes.set_xscale("log", base=2)
    axes.set_yscale("log")
    axes.set_xticks(lengths[:: -(-len(lengths) // 5)], [tokens(length) for length in lengths[:: -(-len(lengths) // 5)]])
    axes.xaxis.set_minor_locator(ticker.NullLocator())
    ticks = log_ticks(*axes.get_ylim())
    axes.set_yticks(ticks, [short(tick) for tick in ticks])
    axes.yaxis.set_minor_locator(ticker.NullLocator())
    axes.set_title(title)
    axes.set_xlabel("length T (tokens)")
    axes.set_ylabel(unit)
