"""Standard deviation of the state by position, for the heads that drift most (lg Figure 9)."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from pathlib import Path
from typing import ClassVar, Literal

import numpy as np
from pydantic import PositiveInt

from ssm.base.lazy import polars as pl
from ssm.claims.families import Member
from ssm.claims.series import PlannedFigure, Series
from ssm.claims.table_numbers import head_std_curve, head_std_growth, positions_of_growth
from ssm.figures.data import Curve, Line, loaded, over_seeds, panels
from ssm.figures.panel import rows_of, token_panel
from ssm.figures.plot import SeriesPlot, require_arms
from ssm.figures.rows import Row
from ssm.figures.style import ArmStyle


class HeadStdCurves(SeriesPlot):
    """Standard deviation of the state by position, for the heads that drift most."""

    kind: Literal["head_std"] = "head_std"
    reads: ClassVar[tuple[str, ...]] = ("state_statistics",)
    heads: PositiveInt = 6  # number of heads
    chosen_by: str  # the arm in which the drift of the heads is measured

    def check(self, families: Mapping[str, Mapping[str, Member]], arms: Collection[str]) -> None:
        require_arms("chosen_by", [self.chosen_by], arms, ())

    def draw(self, task: PlannedFigure, tables: Path, styles: dict[str, ArmStyle]) -> list[Row]:
        """A panel for each head of one seed. (The same head of another seed is unrelated.)

        The heads are those whose standard deviation in `chosen_by` grows most from T to the last position.
        """
        rows = []
        for model in panels(task):
            series = loaded(task, tables, model, self.measurement_name("state_statistics"), "state_statistics")
            chooser = next(((own, table) for own, table in series if own.arm == self.chosen_by), None)
            if chooser is None:
                continue
            same_seed = [(own, head_std_curve(table)) for own, table in series if own.seed == chooser[0].seed]
            plots = []
            for layer, head in drifting_heads(chooser[1], chooser[0].context, self.heads):
                curves = _curves(same_seed, layer, head)
                title = f"layer {layer}, head {head}"
                plots.append(token_panel(curves, styles, title, "std of the state", through=chooser[0].context))
            note = f"{task.title_of(model)}, seed {chooser[0].seed}. Band: standard error over sequences"
            rows += rows_of(plots, 2.3, note, same_y=False)
        return rows


def drifting_heads(state_statistics: pl.DataFrame, context: int, heads: int) -> list[tuple[int, int]]:
    """The (layer, head) pairs whose std grows most from T (or the last measured position before it) to the end.

    They are returned in the order of layers and heads. Heads without a finite growth are chosen last.
    """
    growth = head_std_growth(state_statistics, *positions_of_growth(state_statistics, context))
    finite = pl.col("growth").is_finite().fill_null(False)
    ranked = growth.sort(finite, pl.col("growth"), descending=True, maintain_order=True).head(heads)
    return sorted(ranked.select("layer", "head").iter_rows())


def _curves(series: list[tuple[Series, pl.DataFrame]], layer: int, head: int) -> list[Curve]:
    lines = []
    for own, frame in series:
        rows = frame.filter(pl.col("layer") == layer, pl.col("head") == head)
        if rows.is_empty():  # this arm has fewer heads or layers
            continue
        x, y, error = (rows[name].to_numpy().astype(np.float64) for name in ("position", "std", "error"))
        lines.append((own, Line(x, y, error)))
    return over_seeds(lines)
