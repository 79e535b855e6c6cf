"""Position-wise perplexity (lg Figures 1, 2, 3, 5, 11, 12), with the paired ratio below it."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import replace
from pathlib import Path
from typing import ClassVar, Literal

from ssm.claims.families import Member
from ssm.claims.series import PlannedFigure
from ssm.figures.data import Curve, chosen_arms, curves_of_models, panels, perplexity_curves, ratio_curves
from ssm.figures.panel import note_on, rows_of, token_panel, token_range
from ssm.figures.plot import ChosenArms, SeriesPlot, Titled, require_arms
from ssm.figures.rows import Row, columns_for
from ssm.figures.style import ArmStyle, arm_styles
from ssm.specs.base import Name


class PositionCurves(ChosenArms, Titled, SeriesPlot):
    """Position-wise perplexity by position, a panel for each model; with `ratio`, also the paired ratio below it.

    With `relative_to`, the perplexity is divided by that of this arm on the same text, seed by seed. This removes the
    differences between positions of the text. At the first tokens seeds differ more than arms. So these curves begin at
    half of the shortest training context.
    """

    kind: Literal["position_curves"] = "position_curves"
    reads: ClassVar[tuple[str, ...]] = ("position_loss", "restart_loss")
    together: bool = False  # true: all models in one panel
    relative_to: Name | None = None  # the arm whose perplexity divides that of each arm
    ratio: bool = False  # true: draw the paired ratio below the perplexity
    restarted: str | None = None  # the arm that is restarted in the ratio; none: each arm itself
    restart_loss: Name | None = None  # name of the measurement of the restarted loss; none: restart_loss

    def check(self, families: Mapping[str, Mapping[str, Member]], arms: Collection[str]) -> None:
        super().check(families, arms)
        require_arms("relative_to", [self.relative_to] if self.relative_to else [], arms, ())

    def draw(self, task: PlannedFigure, tables: Path, styles: dict[str, ArmStyle]) -> list[Row]:
        """A panel for each model, x on a log2 axis in tokens, y on a log axis; with `ratio`, the paired ratio below it.

        The ratio at kT is computed on the targets [3/4 kT, kT). It is the perplexity with the full history, divided by
        that of a model restarted T/2 to T tokens before each target. Above 1, the history hurts. Both losses are at the
        same positions.
        """
        losses, relative_to = self.measurement_name("position_loss"), self.relative_to
        perplexity = {model: perplexity_curves(task, tables, model, losses, relative_to) for model in panels(task)}
        found = _by_title(self, task, perplexity)
        label = "perplexity per token"
        if relative_to is not None:
            names = {series.arm: series.label for series in task.series}
            label = f"perplexity\nrelative to {names.get(relative_to, relative_to)}"
        styles = styles | arm_styles([own.arm for curves in found.values() for own in curves if own.arm not in styles])
        upper = [replace(token_panel(own, styles, title, label), log_y=True) for title, own in found.items()]
        if relative_to is not None:
            upper = [replace(panel, x_limits=token_range(panel.curves, 1 / 2), level=1.0) for panel in upper]
        columns = columns_for(len(upper))
        note = note_on([curve for own in found.values() for curve in own])
        rows = rows_of(upper, 3.3 if columns == 1 else 2.6, note)
        if not self.ratio:
            return rows
        paired = {
            m: ratio_curves(task, tables, m, self.restarted, self.measurement_names, self.arms) for m in panels(task)
        }
        ratios = _by_title(self, task, paired)
        label = "perplexity ratio\nfull / restarted " + (self.restarted or "").replace("_", " ")
        limits = {panel.title: panel.x_limits for panel in upper}
        lower = [
            replace(panel, x_limits=limits.get(panel.title, panel.x_limits), log_y=True, level=1.0)
            for panel in (token_panel(own, styles, title, label) for title, own in ratios.items())
        ]
        below = rows_of(lower, 2.7 if columns == 1 else 2.3, note)
        if len(below) != len(rows):
            return rows + below
        return [row for pair in zip(rows, below, strict=True) for row in pair]


def _by_title(plot: PositionCurves, task: PlannedFigure, found: dict[str, list[Curve]]) -> dict[str, list[Curve]]:
    """Title -> curves of the chosen arms, for each panel that has some. With `together`, there is one panel."""
    wanted = chosen_arms(task, plot.arms)
    chosen = {model: [curve for curve in curves if curve.arm in wanted] for model, curves in found.items()}
    there = {model: curves for model, curves in chosen.items() if curves}
    if not plot.together or len(there) < 2:
        return {plot.title_of(task, model): curves for model, curves in there.items()}
    return {plot.title or "": curves_of_models(task, there)}
