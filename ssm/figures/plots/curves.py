"""Any column against any other, an arm a curve."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Annotated, ClassVar, Literal, Self

from pydantic import Field, model_validator

from ssm.base.columns import chosen
from ssm.claims.families import Member, member_name, value_text
from ssm.claims.panel_tables import OWN, with_own_series
from ssm.claims.reader import ColumnReader
from ssm.claims.series import PlannedFigure
from ssm.figures.data import Curve, any_loaded, arms, chosen_arms, column_curves, panels
from ssm.figures.panel import (
    CurvePanel,
    Row,
    columns_for,
    context_marks,
    end_of_bin,
    note_on,
    note_on_draws,
    rows_of,
    token_range,
    x_range,
)
from ssm.figures.plot import SeriesPlot, insist_on_arms
from ssm.figures.style import ArmStyle, arm_styles
from ssm.specs.base import Distinct, Name, Setting
from ssm.specs.measurements import SPECS as MEASUREMENTS
from ssm.specs.measurements.base import OfFigure

KeyValues = dict[
    str, tuple[str, dict[str, Setting]]
]  # of a curve that stands for a value of a key: its arm, and the value


class Curves(ColumnReader, SeriesPlot):
    """A column of a measurement's table against another: a panel a model, a curve an arm, a mean over seeds.

    With `against` the panels named there alone, and of each arm's curve the difference from that of the same arm in
    another panel, seed by seed: of logarithms the logarithm of a ratio. With `by` every value of that key has a curve,
    with `split` a panel. A measurement of the figure's own, of no arm, is drawn as that of one arm.
    """

    kind: Literal["curves"] = "curves"
    of_figure: ClassVar[bool] = True
    x: Name  # a key; `position` stands for the middle of the bins of a table that has them
    tokens: bool = (
        False  # x counts tokens: its axis is logarithmic, in multiples of the training context, which is marked
    )
    exponential: bool = False  # the column is a logarithm (a loss in nats), of which the exponential is drawn
    log_x: bool = False
    log_y: bool = False
    by: Name | None = None  # a key of few values
    split: Name | None = None  # another one
    # arms, or families; None: all
    arms: Annotated[tuple[Name, ...], Field(strict=False, min_length=1), Distinct] | None = None
    against: dict[Name, Name] = {}  # panel -> the panel that it is compared with
    level: float | None = None  # a line of reference, such as chance
    x_label: str | None = None
    y_label: str | None = None

    @model_validator(mode="after")
    def _sane(self) -> Self:
        if self.split is not None and self.split == self.by:
            raise ValueError(f"split: '{self.split}' is what 'by' has a curve for already; give another key")
        kind = MEASUREMENTS.get(self.measurement)  # no measurement of arms bears the name of another kind
        if self.arms is not None and kind is not None and issubclass(kind, OfFigure):
            raise ValueError(f"arms: '{self.measurement}' is measured of the figure, and of no arm")
        return self

    def check(self, families: Mapping[str, Mapping[str, Member]], arms: Collection[str]) -> None:
        insist_on_arms("arms", self.arms or (), arms, families)

    def panels(self) -> tuple[str, ...]:
        return tuple(self.against) + tuple(self.against.values())

    def draw(self, task: PlannedFigure, tables: Path, styles: dict[str, ArmStyle]) -> list[Row]:
        """A panel per model, or for each value of a key; the axes show all that was measured."""
        task = with_own_series(task, tables, self.measurement)
        places: KeyValues = {}
        found = {
            " ".join(words): own
            for model, other in (self.against or dict.fromkeys(panels(task))).items()
            for name, part in _split(self, task, tables, model).items()
            for words in [[one for one in (_title(task, model, other), name) if one]]
            if (own := _curves(part, task, tables, model, other, places))
        }
        looks = arm_styles(arms(task)) | styles | arm_styles(list(places), places)
        plots = [_panel(self, own, looks, title) for title, own in found.items()]
        every = [curve for own in found.values() for curve in own]
        note = note_on(every) if arms(task) != [OWN] else note_on_draws(every)
        return rows_of(plots, 3.3 if columns_for(len(plots)) == 1 else 2.6, note)


def _title(task: PlannedFigure, model: str, other: str | None) -> str:
    return task.title_of(model) + ("" if other is None else f" against {task.title_of(other)}")


def _split(plot: Curves, task: PlannedFigure, tables: Path, model: str) -> dict[str, Curves]:
    """Title -> what is drawn there: all of it, or of each value of a key its own."""
    key = plot.split
    if key is None:
        return {"": plot}
    return {
        value_text(value): plot.model_copy(update={"where": plot.where | {key: value}})
        for value in _values(plot, task, tables, model, key)
    }


def _values(plot: Curves, task: PlannedFigure, tables: Path, model: str, key: str) -> list[Setting]:
    """The values of a key in the rows that are drawn."""
    every = [chosen(table, schema, plot.where) for _, table, schema in any_loaded(task, tables, model, plot)]
    return list(dict.fromkeys(value for table in every for value in table[key].to_list()))


def _curves(
    plot: Curves, task: PlannedFigure, tables: Path, model: str, other: str | None, places: KeyValues
) -> list[Curve]:
    """The curves of a panel; those that stand for values of a key are noted in `places`."""
    wanted = chosen_arms(task, plot.arms)

    def read(reader: Curves) -> list[Curve]:
        return column_curves(task, tables, model, reader, plot.x, plot.exponential, other, wanted)

    if plot.by is None:
        return read(plot)
    found = []
    for value in _values(plot, task, tables, model, plot.by):
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
