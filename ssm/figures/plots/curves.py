"""Any column of a table by another column, with a curve for each arm."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import ClassVar, Literal, Self

from pydantic import model_validator

from ssm.claims.families import member_name, value_text
from ssm.claims.panel_tables import OWN, with_own_series
from ssm.claims.reader import ColumnReader
from ssm.claims.series import PlannedFigure
from ssm.figures.data import Curve, arms, chosen_arms, column_curves, panels, split_by, values_of
from ssm.figures.panel import (
    CurvePanel,
    context_marks,
    end_of_bin,
    note_on,
    note_on_draws,
    rows_of,
    token_range,
    x_range,
)
from ssm.figures.plot import ChosenArms, SeriesPlot, Titled
from ssm.figures.rows import Row, columns_for
from ssm.figures.style import ArmStyle, arm_styles
from ssm.specs.base import Name, Setting
from ssm.specs.measurements import SPECS as MEASUREMENTS
from ssm.specs.measurements.base import OfFigure

KeyValues = dict[str, tuple[str, dict[str, Setting]]]  # curve of a value of a key -> its arm, and the value


class Curves(ChosenArms, Titled, ColumnReader, SeriesPlot):
    """A column of a measurement's table by another column: a panel for each model, a curve for each arm.

    A curve is a mean over seeds. With `against`, only the panels named there are drawn, and each curve is the
    difference from the same arm in another panel, seed by seed. (For logarithms this is the logarithm of a ratio.) With
    `by`, each value of that key has its own curve, and with `split` its own panel. A measurement of the figure itself
    is drawn as if it belonged to one arm.
    """

    kind: Literal["curves"] = "curves"
    of_figure: ClassVar[bool] = True
    x: Name  # column on the horizontal axis, a key; `position` is the middle of the bins of a table with bins
    # true: x counts tokens. The axis is logarithmic, in multiples of the training context, which is marked
    tokens: bool = False
    exponential: bool = False  # true: draw the exponential of the column, such as the perplexity of a loss in nats
    log_x: bool = False  # true: logarithmic horizontal axis
    log_y: bool = False  # true: logarithmic vertical axis
    by: Name | None = None  # a key of few values: draw a curve for each value
    split: Name | None = None  # another key: draw a panel for each value
    against: dict[Name, Name] = {}  # panel -> the panel that it is compared with
    level: float | None = None  # a reference line, such as chance
    x_label: str | None = None  # label of the horizontal axis; none: the name of the column
    y_label: str | None = None  # label of the vertical axis; none: the name of the column

    @model_validator(mode="after")
    def _different_keys(self) -> Self:
        if self.split is not None and self.split == self.by:
            raise ValueError(f"split: 'by' already draws a curve for each '{self.split}'; give another key")
        kind = MEASUREMENTS.get(self.measurement)  # a measurement of arms cannot have the name of another kind
        if self.arms is not None and kind is not None and issubclass(kind, OfFigure):
            raise ValueError(f"arms: leave it out; '{self.measurement}' is measured on the figure and not on arms")
        return self

    def named_columns(self) -> dict[str, tuple[str, str]]:
        keys = {"x": self.x, "by": self.by, "split": self.split}
        return super().named_columns() | {
            key: (self.measurement, name) for key, name in keys.items() if name is not None
        }

    def panels(self) -> tuple[str, ...]:
        return tuple(self.against) + tuple(self.against.values())

    def draw(self, task: PlannedFigure, tables: Path, styles: dict[str, ArmStyle]) -> list[Row]:
        """A panel for each model, or for each value of a key. The axes show everything that was measured."""
        task = with_own_series(task, tables, self.measurement)
        places: KeyValues = {}
        found = {
            " ".join(words): own
            for model, other in (self.against or dict.fromkeys(panels(task))).items()
            for name, part in split_by(self.split, self, task, tables, model).items()
            for words in [[one for one in (_title(self, task, model, other), name) if one]]
            if (own := _curves(part, task, tables, model, other, places))
        }
        styles = arm_styles(arms(task)) | styles
        if self.by is None:
            shown = self.looks(task, styles)
            found = {title: [shown[curve.arm].of(curve) for curve in curves] for title, curves in found.items()}
            styles |= {look.name: look.style for look in shown.values()}
        looks = styles | arm_styles(list(places), places)
        plots = [_panel(self, own, looks, title) for title, own in found.items()]
        every = [curve for own in found.values() for curve in own]
        note = note_on(every, marked=self.tokens) if arms(task) != [OWN] else note_on_draws(every)
        return rows_of(plots, 3.3 if columns_for(len(plots)) == 1 else 2.6, note)


def _title(plot: Curves, task: PlannedFigure, model: str, other: str | None) -> str:
    return plot.title_of(task, model) + ("" if other is None else f" against {task.title_of(other)}")


def _curves(
    plot: Curves, task: PlannedFigure, tables: Path, model: str, other: str | None, places: KeyValues
) -> list[Curve]:
    """The curves of a panel. Curves of single values of a key are entered into `places`."""
    wanted = chosen_arms(task, plot.arms)

    def read(reader: Curves) -> list[Curve]:
        return column_curves(task, tables, model, reader, plot.x, plot.exponential, other, wanted)

    if plot.by is None:
        return read(plot)
    found = []
    for value in values_of(plot.by, plot, task, tables, model):
        for curve in read(plot.model_copy(update={"where": plot.where | {plot.by: value}})):
            place = {plot.by: value}
            name, label = member_name(curve.arm, place), value_text(value)
            places[name] = (curve.arm, place)
            found.append(replace(curve, arm=name, label=label if len(wanted) == 1 else f"{curve.label}, {label}"))
    return found


def _panel(plot: Curves, found: list[Curve], styles: dict[str, ArmStyle], title: str) -> CurvePanel:
    logarithmic = plot.tokens or plot.log_x
    low, high = x_range(found, logarithmic)
    if plot.tokens:
        low, high = max(low, token_range(found)[0]), end_of_bin(high)
    return CurvePanel(
        found,
        styles,
        title,
        plot.x_label or plot.x.replace("_", " ") + (" (tokens)" if plot.tokens else ""),
        plot.y_label or plot.column.replace("_", " "),
        (low, high),
        through=found[0].context,
        tokens=plot.tokens,
        log_x=logarithmic,
        log_y=plot.log_y,
        level=plot.level,
        marks=context_marks(found, styles) if plot.tokens else (),
    )
