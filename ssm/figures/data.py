"""From a figure's tables to its curves, with polars and NumPy only.

A line is the mean over seeds, and its band the range over seeds. A range grows with the number of seeds: the band
leaves out the highest and the lowest tenth of them, rounded down. A mean far from the median can be outside. With one
seed, the band is the standard error over sequences. Losses are averaged in nats and then turned into perplexities.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TypeVar

import numpy as np

from ssm.base.columns import maximum, means, rows_where
from ssm.base.lazy import polars as pl
from ssm.base.schema import Schema
from ssm.base.tables import read_any
from ssm.claims.families import value_text
from ssm.claims.panel_tables import existing_table
from ssm.claims.reader import ColumnReader
from ssm.claims.series import PlannedFigure, Series
from ssm.claims.table_numbers import (
    paired_log_ratio,
    position_curve,
    ratio_positions,
    remembrance_curve,
    state_norm_curve,
)
from ssm.specs.base import Setting
from ssm.specs.measurements import SCHEMAS

OUTER_SEEDS = 10  # the band leaves out one seed of so many at each end
OfColumn = TypeVar("OfColumn", bound=ColumnReader)


@dataclass(frozen=True)
class Curve:
    """The curve of one arm in one panel. All arrays have the shape (points,)."""

    arm: str
    label: str
    context: int  # training context T of the arm
    seeds: int
    x: np.ndarray
    y: np.ndarray
    low: np.ndarray
    high: np.ndarray
    of_seeds: tuple[tuple[np.ndarray, np.ndarray], ...] = ()  # x and y of every seed, (points,) each

    def finite(self) -> np.ndarray:
        """Which points can be drawn. (points,)"""
        return np.isfinite(self.x) & np.isfinite(self.y)

    def breaks_off(self) -> bool:
        """Whether the curve ends in values that are not finite, although it was measured further."""
        finite = self.finite()
        return bool(finite.any() and not finite[-1])


@dataclass(frozen=True)
class Line:
    """The curve of one seed: mean and standard error over sequences. All arrays have the shape (points,)."""

    x: np.ndarray
    y: np.ndarray
    error: np.ndarray


def read_planned(task: PlannedFigure, tables: Path, table: str, kind: str) -> pl.DataFrame:
    """Read a planned table, given its id and the kind of its measurement. Raises as `read_any_planned`."""
    return read_any_planned(task, tables, table, {kind: SCHEMAS[kind]})[0]


def read_any_planned(
    task: PlannedFigure, tables: Path, table: str, schemas: Mapping[str, Schema] = SCHEMAS
) -> tuple[pl.DataFrame, Schema]:
    """Read a planned table of one of the `schemas`, given its id. Returns its schema too.

    The table of a diverged run was measured at its last finite weights, not at its end. Its values are therefore
    replaced: floats by NaN, others by null. Its keys stay.

    Raises:
        TableError: the table is missing or broken; a missing table with the command that makes it.
    """
    frame, schema, provenance = read_any(existing_table(task, tables, table), schemas)
    if provenance.get("diverged"):
        frame = _without_values(frame, schema)
    return frame, schema


def _without_values(frame: pl.DataFrame, schema: Schema) -> pl.DataFrame:
    """The table with NaN (floats) or null (other types) instead of its values; the keys stay."""
    values = {column: kind for column, kind in schema.columns.items() if column not in schema.keys}
    nothing = [pl.lit(math.nan if kind.is_float() else None, kind).alias(column) for column, kind in values.items()]
    return frame.with_columns(nothing)


def own_table(task: PlannedFigure, tables: Path, kind: str) -> pl.DataFrame | None:
    """The figure's own tables of this kind, which belong to no arm, joined into one; None if there are none.

    Raises:
        TableError: see `read_planned`.
    """
    frames = [read_planned(task, tables, table, kind) for table in task.own_tables(kind)]
    return pl.concat(frames) if frames else None


def panels(task: PlannedFigure) -> list[str]:
    """The panels (models) that have series, in the order of the figure."""
    present = dict.fromkeys(series.panel for series in task.series)
    return sorted(present, key=[*task.models, *present].index)


def arms(task: PlannedFigure) -> list[str]:
    """The arms that have series, in the order of the plan."""
    return list(dict.fromkeys(series.arm for series in task.series))


def curves_of_models(task: PlannedFigure, by_model: Mapping[str, Sequence[Curve]]) -> list[Curve]:
    """The curves of all models for one panel. The label has the model, and the arm if a model has several curves."""
    return [
        replace(
            curve,
            arm=f"{curve.arm} of {model}",
            label=task.title_of(model) + (f", {curve.label}" if len(curves) > 1 else ""),
        )
        for model, curves in by_model.items()
        for curve in curves
    ]


def chosen_arms(task: PlannedFigure, names: Sequence[str] | None) -> list[str]:
    """The arms of these names that have series, in this order. A name is an arm or a family; None selects all arms."""
    every = {series.arm: series.family for series in task.series}
    if names is None:
        return list(every)
    return list(dict.fromkeys(arm for name in names for arm, family in every.items() if name in (arm, family)))


def loaded(task: PlannedFigure, tables: Path, panel: str, name: str, kind: str) -> list[tuple[Series, pl.DataFrame]]:
    """(series, table) of every series of `panel` with the measurement `name` of this kind, in the task's order."""
    chosen = [series for series in task.series if series.panel == panel and name in series.tables]
    return [(series, read_planned(task, tables, series.tables[name], kind)) for series in chosen]


def perplexity_curves(
    task: PlannedFigure,
    tables: Path,
    panel: str,
    name: str = "position_loss",
    relative_to: str | None = None,
) -> list[Curve]:
    """Position-wise perplexity (lg Definition 3.1) of every arm at the middle of every bin.

    Args:
        relative_to: the arm whose perplexity divides that of each arm, seed by seed and sequence by sequence.
    """
    middle = (pl.col("position_from") + pl.col("position_to")) / 2
    found = loaded(task, tables, panel, name, "position_loss")
    if relative_to is not None:
        others = {series.seed: table for series, table in found if series.arm == relative_to}
        found = [(series, _less(table, others[series.seed])) for series, table in found if series.seed in others]
    lines = [
        (series, _line(position_curve(table).with_columns(middle=middle), "middle", "loss")) for series, table in found
    ]
    return over_seeds(lines, finish=np.exp)


def _less(table: pl.DataFrame, other: pl.DataFrame) -> pl.DataFrame:
    """A `position_loss` table with the difference to the loss of another one, on the same text."""
    both = table.join(other, on=["sequence", "position_from", "position_to"], suffix="_there")
    return both.with_columns(loss=pl.col("loss") - pl.col("loss_there"))


def ratio_curves(
    task: PlannedFigure,
    tables: Path,
    panel: str,
    restarted: str | None,
    names: tuple[str, ...],
    arms: Sequence[str] | None,
) -> list[Curve]:
    """Paired ratio at kT: perplexity with the full history / after a restart, on the targets [3/4 kT, kT).

    Args:
        restarted: the arm that is restarted (Rbase if it is the base); None: each arm itself (Rown).
        names: names of the measurements of the loss with full history and after a restart.
        arms: names of arms or families whose ratios are wanted; None: all. Other arms may be measured on other text.
    """
    wanted = chosen_arms(task, arms)
    losses, restart_losses = names
    restarts = {
        (series.arm, series.seed): (series, table)
        for series, table in loaded(task, tables, panel, restart_losses, "restart_loss")
        if restarted in (None, series.arm)
    }
    lines = []
    for series, full in loaded(task, tables, panel, losses, "position_loss"):
        other = restarts.get((restarted or series.arm, series.seed))
        if other is None or series.arm not in wanted:
            continue
        longest = maximum(full["position_to"])
        ends = [end for end in ratio_positions(other[1]) if end <= longest]
        logs = [paired_log_ratio(full, other[1], end)["value"].to_numpy() for end in ends]
        mean, error = np.array([log.mean() for log in logs]), np.array([_standard_error(log) for log in logs])
        lines.append((series, Line(np.array(ends, dtype=float), mean, error)))
    return over_seeds(lines, finish=np.exp)


def state_norm_curves(task: PlannedFigure, tables: Path, panel: str, name: str) -> list[Curve]:
    """Norm of the whole state by position (lg Figure 4)."""
    found = loaded(task, tables, panel, name, "state_statistics")
    return over_seeds([(series, _line(state_norm_curve(table), "position", "norm")) for series, table in found])


def remembrance_curves(task: PlannedFigure, tables: Path, panel: str, distance: str, name: str) -> list[Curve]:
    """Effective Remembrance by t (lg Definition 3.3) under one distance."""
    found = loaded(task, tables, panel, name, "effective_remembrance")
    return over_seeds([(series, _line(remembrance_curve(table, distance), "t", "value")) for series, table in found])


def column_curves(
    task: PlannedFigure,
    tables: Path,
    panel: str,
    reader: ColumnReader,
    x: str,
    exponential: bool,
    against: str | None,
    wanted: Sequence[str] | None,
) -> list[Curve]:
    """A column of any table by another column, for the rows that `reader` selects.

    Args:
        against: a panel; its curves of the same arm and seed are subtracted.
        wanted: arms; None: all.
        exponential: apply the exponential to the averages, for a column of logarithms.
    """
    lines = column_lines(task, tables, panel, reader, x)
    if against is not None:
        lines = differences(lines, column_lines(task, tables, against, reader, x))
    lines = [(series, line) for series, line in lines if wanted is None or series.arm in wanted]
    return over_seeds(lines, finish=np.exp if exponential else np.asarray)


def column_lines(
    task: PlannedFigure, tables: Path, panel: str, reader: ColumnReader, x: str
) -> list[tuple[Series, Line]]:
    """One line per arm and seed for `column_curves`. Tables without selected rows give no line."""
    lines = []
    for series, table, schema in any_loaded(task, tables, panel, reader):
        frame = means(rows_where(table, schema, reader.where), schema, [x], reader.column)
        if not frame.is_empty():
            lines.append((series, _line(frame, x, "value")))
    return lines


def differences(lines: list[tuple[Series, Line]], others: list[tuple[Series, Line]]) -> list[tuple[Series, Line]]:
    """Lines minus the other lines of the same arm and seed, at their shared points. Errors add in quadrature."""
    there = {(series.arm, series.seed): line for series, line in others}
    found = []
    for series, line in lines:
        other = there.get((series.arm, series.seed))
        if other is not None:
            x, own, its = np.intersect1d(line.x, other.x, return_indices=True)
            error = np.hypot(line.error[own], other.error[its])
            found.append((series, Line(x, line.y[own] - other.y[its], error)))
    return found


def any_loaded(
    task: PlannedFigure, tables: Path, panel: str, reader: ColumnReader
) -> list[tuple[Series, pl.DataFrame, Schema]]:
    """(series, table, schema) of every series of `panel` that has the reader's measurement, of any kind."""
    found = []
    for series in task.series:
        if series.panel == panel and reader.measurement in series.tables:
            found.append((series, *read_any_planned(task, tables, series.tables[reader.measurement])))
    return found


def values_of(key: str, reader: ColumnReader, task: PlannedFigure, tables: Path, panel: str) -> list[Setting]:
    """The values of a key in the rows that are drawn."""
    every = [rows_where(table, schema, reader.where) for _, table, schema in any_loaded(task, tables, panel, reader)]
    return list(dict.fromkeys(value for table in every for value in table[key].to_list()))


def split_by(key: str | None, reader: OfColumn, task: PlannedFigure, tables: Path, panel: str) -> dict[str, OfColumn]:
    """Title of a panel -> what is drawn in it: everything, or the rows of one value of `key`."""
    if key is None:
        return {"": reader}
    return {
        value_text(value): reader.model_copy(update={"where": reader.where | {key: value}})
        for value in values_of(key, reader, task, tables, panel)
    }


def over_seeds(
    lines: list[tuple[Series, Line]], finish: Callable[[np.ndarray], np.ndarray] = np.asarray
) -> list[Curve]:
    """One curve per arm from one line per arm and seed. `finish` is applied to the averages (exp for perplexities).

    Averages leave out points that some seed lacks. Lines of single seeds keep theirs: a run that diverges ends early.
    If a seed is not finite at a point, the whole arm is not finite there. An average over the other seeds would be too
    optimistic.
    """
    curves = []
    for arm in dict.fromkeys(series.arm for series, _ in lines):
        own = [(series, line) for series, line in lines if series.arm == arm]
        x = own[0][1].x
        for _, line in own[1:]:
            x = np.intersect1d(x, line.x)
        y = np.stack([line.y[np.isin(line.x, x)] for _, line in own])  # (seeds, points)
        outer, ordered = len(own) // OUTER_SEEDS, np.sort(y, axis=0)
        mean, low, high = y.mean(0), ordered[outer], ordered[-1 - outer]
        if len(own) == 1:
            low, high = mean - own[0][1].error, mean + own[0][1].error
        first = own[0][0]
        with np.errstate(over="ignore"):
            ends = finish(mean), finish(low), finish(high)
            of_seeds = tuple((line.x, finish(line.y)) for _, line in own)
        curves.append(Curve(arm, first.label, first.context, len(own), x, *ends, of_seeds))
    return curves


def _line(frame: pl.DataFrame, x: str, y: str) -> Line:
    return Line(*(frame[name].cast(pl.Float64).to_numpy() for name in (x, y, "error")))


def _standard_error(values: np.ndarray) -> float:
    return float(values.std(ddof=1) / np.sqrt(len(values))) if len(values) > 1 else float("nan")
