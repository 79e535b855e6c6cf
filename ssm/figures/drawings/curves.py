"""Any column against any other, an arm a curve."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from ssm.base.columns import chosen
from ssm.claims.panel import OWN, with_own_series
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
from ssm.figures.style import ArmStyle, arm_styles
from ssm.specs.base import Setting
from ssm.specs.drawings.curves import Curves
from ssm.specs.families import member_name, value_text
from ssm.specs.figure import FigureTask

Places = dict[
    str, tuple[str, dict[str, Setting]]
]  # of a curve that stands for a value of a key: its arm, and the value


def curves(drawing: Curves, task: FigureTask, tables: Path, styles: dict[str, ArmStyle]) -> list[Row]:
    """A panel per model, or for each value of a key; the axes show all that was measured, of the first table's kind."""
    task = with_own_series(task, tables, drawing.measurement)
    places: Places = {}
    found = {
        " ".join(words): own
        for model, other in (drawing.against or dict.fromkeys(panels(task))).items()
        for name, part in _split(drawing, task, tables, model).items()
        for words in [[one for one in (model if other is None else f"{model} against {other}", name) if one]]
        if (own := _curves(part, task, tables, model, other, places))
    }
    looks = arm_styles(arms(task)) | styles | arm_styles(list(places), places)
    plots = [_panel(drawing, own, looks, title) for title, own in found.items()]
    every = [curve for own in found.values() for curve in own]
    note = note_on(every) if arms(task) != [OWN] else note_on_draws(every)
    return rows_of(plots, 3.3 if columns_for(len(plots)) == 1 else 2.6, note)


def _split(drawing: Curves, task: FigureTask, tables: Path, model: str) -> dict[str, Curves]:
    """Title -> what is drawn there: all of it, or of each value of a key its own."""
    key = drawing.split
    if key is None:
        return {"": drawing}
    return {
        value_text(value): drawing.model_copy(update={"where": drawing.where | {key: value}})
        for value in _values(drawing, task, tables, model, key)
    }


def _values(drawing: Curves, task: FigureTask, tables: Path, model: str, key: str) -> list[Setting]:
    """The values of a key in the rows that are drawn."""
    every = [chosen(table, schema, drawing.where) for _, table, schema in any_loaded(task, tables, model, drawing)]
    return list(dict.fromkeys(value for table in every for value in table[key].to_list()))


def _curves(
    drawing: Curves, task: FigureTask, tables: Path, model: str, other: str | None, places: Places
) -> list[Curve]:
    """The curves of a panel; those that stand for values of a key are noted in `places`."""
    wanted = chosen_arms(task, drawing.arms)

    def read(reader: Curves) -> list[Curve]:
        return column_curves(task, tables, model, reader, drawing.x, drawing.exponential, other, wanted)

    if drawing.by is None:
        return read(drawing)
    found = []
    for value in _values(drawing, task, tables, model, drawing.by):
        for curve in read(drawing.model_copy(update={"where": drawing.where | {drawing.by: value}})):
            place = {drawing.by: value}
            name, label = member_name(curve.arm, place), value_text(value)
            places[name] = (curve.arm, place)
            found.append(replace(curve, arm=name, label=label if len(wanted) == 1 else f"{curve.label}, {label}"))
    return found


def _panel(drawing: Curves, found: list[Curve], styles: dict[str, ArmStyle], title: str) -> CurvePanel:
    logarithmic = drawing.tokens or drawing.log_x
    low, high = x_range(found, logarithmic)
    if drawing.tokens:
        low, high = max(low, token_range(found)[0]), end_of_bin(high)
    return CurvePanel(
        found,
        styles,
        title,
        drawing.x_label or drawing.x.replace("_", " ") + (" (tokens)" if drawing.tokens else ""),
        drawing.y_label or drawing.column.replace("_", " "),
        (low, high),
        through=found[0].context,
        tokens=drawing.tokens,
        log_x=logarithmic,
        log_y=drawing.log_y,
        level=drawing.level,
        marks=context_marks(found, styles) if drawing.tokens else (),
    )
