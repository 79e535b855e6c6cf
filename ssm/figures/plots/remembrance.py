"""Effective Remembrance by t (lg Figures 1 and 13)."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, ClassVar, Literal

from pydantic import Field

from ssm.claims.quantities.remembrance import Distance
from ssm.claims.series import PlannedFigure
from ssm.figures.data import Curve, panels, remembrance_curves
from ssm.figures.panel import CurvePanel, Mark, note_on, rows_of
from ssm.figures.plot import SeriesPlot
from ssm.figures.rows import Row, columns_for
from ssm.figures.style import ArmStyle
from ssm.specs.base import Distinct

DISTANCES = {
    "total_variation": "total variation",
    "jensen_shannon": "Jensen-Shannon",
    "one_minus_cosine": "1 − cosine",
}


class RemembranceCurves(SeriesPlot):
    """Effective Remembrance (lg Definition 3.3) by t, a panel for each distance."""

    kind: Literal["remembrance"] = "remembrance"
    reads: ClassVar[tuple[str, ...]] = ("effective_remembrance",)
    # distances between the predictions with and without the first t tokens
    distances: Annotated[tuple[Distance, ...], Field(strict=False, min_length=1), Distinct] = ("total_variation",)

    def draw(self, task: PlannedFigure, tables: Path, styles: dict[str, ArmStyle]) -> list[Row]:
        """A panel for each model and distance. At t, the first t tokens are withheld from the model.

        With one model, its distances share rows. With several, each distance has its own rows.
        """
        models = panels(task)
        blocks = [[(model, distance) for model in models] for distance in self.distances]
        if len(models) == 1:
            blocks = [[place for block in blocks for place in block]]
        rows = []
        for block in blocks:
            found = {place: remembrance_curves(task, tables, *place, *self.measurement_names) for place in block}
            plots = [
                _panel(
                    curves,
                    styles,
                    task.title_of(model),
                    distance,
                    alone=len(self.distances) == 1,
                    one_model=len(models) == 1,
                )
                for (model, distance), curves in found.items()
                if curves
            ]
            note = note_on([curve for curves in found.values() for curve in curves])
            rows += rows_of(plots, 3.0 if columns_for(len(plots)) == 1 else 2.8, note)
        return rows


def _panel(
    curves: list[Curve], styles: dict[str, ArmStyle], model: str, distance: str, alone: bool, one_model: bool
) -> CurvePanel:
    name = DISTANCES[distance]
    return CurvePanel(
        curves,
        styles,
        name if one_model and not alone else model,
        "t (tokens withheld)",
        "Effective Remembrance" + (f"\n({name})" if alone or not one_model else ""),
        (0.0, max(_length(curve) for curve in curves)),
        log_x=False,
        marks=_marks(curves, styles),
    )


def _marks(curves: list[Curve], styles: dict[str, ArmStyle]) -> list[Mark]:
    """Left of the mark, the model reads more than a training context. If it extends, the curve is near 0 there."""
    contexts = {curve.context for curve in curves}
    marks = [Mark(_length(curve) - curve.context, "", styles[curve.arm].color) for curve in curves]
    return [Mark(marks[0].x, "last T tokens kept")] if len(contexts) == 1 else marks


def _length(curve: Curve) -> float:
    """Length of the sequence: at the last measured t, all tokens but one are withheld."""
    return float(curve.x.max()) + 1
