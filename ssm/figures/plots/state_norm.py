"""Norm of the whole state by position (lg Figure 4)."""

from __future__ import annotations

from pathlib import Path
from typing import ClassVar, Literal

from ssm.claims.series import PlannedFigure
from ssm.figures.data import panels, state_norm_curves
from ssm.figures.panel import note_on, rows_of, token_panel
from ssm.figures.plot import SeriesPlot
from ssm.figures.rows import Row, columns_for
from ssm.figures.style import ArmStyle


class StateNormCurves(SeriesPlot):
    """Norm of the whole state by position."""

    kind: Literal["state_norm"] = "state_norm"
    reads: ClassVar[tuple[str, ...]] = ("state_statistics",)

    def draw(self, task: PlannedFigure, tables: Path, styles: dict[str, ArmStyle]) -> list[Row]:
        """A panel for each model, each with its own y axis: norms of different models are not comparable."""
        found = {model: state_norm_curves(task, tables, model, *self.measurement_names) for model in panels(task)}
        plots = [
            token_panel(curves, styles, task.title_of(model), "norm of the whole state")
            for model, curves in found.items()
            if curves
        ]
        note = note_on([curve for curves in found.values() for curve in curves])
        return rows_of(plots, 3.0 if columns_for(len(plots)) == 1 else 2.5, note, same_y=False)
