"""Position-wise perplexity (lg Figures 1, 2, 3, 5, 11, 12), with the paired ratio below it."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import ClassVar, Literal

from ssm.claims.series import PlannedFigure
from ssm.figures.data import Curve, panels, perplexity_curves, ratio_curves
from ssm.figures.panel import CurvePanel, Row, columns_for, note_on, rows_of, token_panel, token_range
from ssm.figures.plot import SeriesPlot
from ssm.figures.style import ArmStyle
from ssm.specs.base import Name


class PositionCurves(SeriesPlot):
    """Position-wise perplexity by position, a panel for each model; with `ratio`, also the paired ratio below it."""

    kind: Literal["position_curves"] = "position_curves"
    reads: ClassVar[tuple[str, ...]] = ("position_loss", "restart_loss")
    ratio: bool = False  # true: draw the paired ratio below the perplexity
    restarted: str | None = None  # the arm that is restarted in the ratio; none: each arm itself
    restart_loss: Name | None = None  # name of the measurement of the restarted loss; none: restart_loss

    def draw(self, task: PlannedFigure, tables: Path, styles: dict[str, ArmStyle]) -> list[Row]:
        """A panel for each model, x on a log2 axis in tokens, y on a log axis; with `ratio`, the paired ratio below it.

        The ratio at kT is computed on the targets [3/4 kT, kT). It is the perplexity with the full history, divided by
        that of a model restarted T/2 to T tokens before each target. Above 1, the history hurts. Both losses are at the
        same positions.
        """
        models = panels(task)
        columns = columns_for(len(models))
        curves = {model: perplexity_curves(task, tables, model, self.name_of("position_loss")) for model in models}
        perplexity = [
            replace(token_panel(own, styles, task.title_of(model), "perplexity per token"), log_y=True)
            for model, own in curves.items()
            if own
        ]
        note = note_on([curve for own in curves.values() for curve in own])
        rows = rows_of(perplexity, 3.3 if columns == 1 else 2.6, note)
        if not self.ratio:
            return rows
        ratios = {model: ratio_curves(task, tables, model, self.restarted, self.names) for model in models}
        label = "perplexity ratio\nfull / restarted " + (self.restarted or "").replace("_", " ")
        lower = [
            _ratio_panel(ratios[model], curves[model], styles, task.title_of(model), label)
            for model in models
            if ratios[model]
        ]
        below = rows_of(lower, 2.7 if columns == 1 else 2.3, note)
        if len(below) != len(rows):
            return rows + below
        return [row for pair in zip(rows, below, strict=True) for row in pair]


def _ratio_panel(
    ratios: list[Curve], curves: list[Curve], styles: dict[str, ArmStyle], title: str, label: str
) -> CurvePanel:
    """The paired ratio on the x axis of the perplexity above it."""
    panel = token_panel(ratios, styles, title, label)
    limits = token_range(curves)
    return replace(panel, x_label="position kT (tokens)", x_limits=limits, log_y=True, level=1.0, untitled=True)
