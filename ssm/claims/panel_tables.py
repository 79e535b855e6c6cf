"""The series and tables of one panel of a figure, as claims read them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TypeGuard, TypeVar

import numpy as np

from ssm.base.bins import bin_edges
from ssm.base.columns import listed, maximum, rows_where
from ssm.base.errors import TableError
from ssm.base.lazy import polars as pl
from ssm.base.schema import Schema
from ssm.base.tables import read_any
from ssm.claims.estimate import UndecidableError
from ssm.claims.reader import SeriesReader
from ssm.claims.series import PlannedFigure, Series
from ssm.claims.snakemake_command import snakemake_command
from ssm.claims.table_numbers import mean_loss
from ssm.specs.base import Setting
from ssm.specs.measurements import SCHEMAS
from ssm.specs.measurements.base import Measurement, OfWindows
from ssm.specs.measurements.restart_loss import RestartLoss, octaves
from ssm.specs.measurements.state_statistics import StateStatistics

F = TypeVar("F", bound=PlannedFigure)
OWN = ""  # placeholder arm for tables that belong to no arm


@dataclass(frozen=True)
class PanelTables:
    """The series and tables of one panel of a figure."""

    task: PlannedFigure
    name: str
    folder: Path  # folder of the tables

    def series(self, arm: str) -> dict[int, Series]:
        """Seed -> series of an arm.

        Raises:
            UndecidableError: the arm does not exist at this scale, or several runs have its name.
        """
        found: dict[int, Series] = {}
        for series in self.task.series:
            if series.arm == arm and series.panel == self.name and found.setdefault(series.seed, series) != series:
                raise UndecidableError(f"several runs of seed {series.seed} have the arm's name '{arm}'")
        if not found:
            raise UndecidableError(f"the arm '{arm}' does not exist at the scale {self.task.scale}")
        return found

    def of_seed(self, arm: str, seed: int, called: str) -> Series:
        """The series of an arm with this seed. `called` names the arm in the error.

        Raises:
            UndecidableError: as `series`, or the arm does not have this seed.
        """
        series = self.series(arm).get(seed)
        if series is None:
            raise UndecidableError(f"{called} '{arm}' has no seed {seed}")
        return series

    def of(self, name: str) -> PanelTables:
        """Another panel of the same figure."""
        return PanelTables(self.task, name, self.folder)

    def table(self, series: Series, name: str, kind: str) -> pl.DataFrame:
        """The table of a series, given the name and the kind of the measurement.

        Raises:
            UndecidableError: the measurement was not planned, or the run diverged.
            TableError: the table was planned, but it is missing or broken.
        """
        return self.any_table(series, name, {kind: SCHEMAS[kind]})[0]

    def any_table(
        self, series: Series, name: str, schemas: Mapping[str, Schema] = SCHEMAS
    ) -> tuple[pl.DataFrame, Schema]:
        """The table of a series and its schema, one of `schemas`. Raises as `table`.

        Args:
            name: the name of the measurement.
        """
        if name not in series.tables:
            raise UndecidableError(f"{name} is not measured for the arm '{series.arm}' at the scale {self.task.scale}")
        table, schema, provenance = read_any(self.folder / f"{series.tables[name]}.parquet", schemas)
        if provenance.get("diverged"):  # measured at the last finite weights, not at the end of the run
            raise UndecidableError(f"the run of '{series.arm}', seed {series.seed}, diverged")
        return table, schema

    def rows(self, table: pl.DataFrame, schema: Schema, where: Mapping[str, Setting]) -> pl.DataFrame:
        """The rows with these values.

        Raises:
            UndecidableError: there are no such rows at this scale.
            TableError: see `ssm.base.columns.rows_where`.
        """
        for column, value in where.items():
            found = rows_where(table, schema, {column: value})
            if found.is_empty():
                there = listed(table, column)
                raise UndecidableError(f"{schema.name} is measured at {column} {there} at this scale, not at {value}")
            table = found
        return table

    def label(self, arm: str) -> str:
        """The label of an arm."""
        return self.task.labels.get(arm, arm)


def with_own_series(task: F, folder: Path, kind: str) -> F:
    """The figure with one series that has the figure's own table of this kind.

    Code that reads a column of an arm's table then also reads a table of the figure. The figure is returned unchanged
    if its series have this kind, or if it has no table of this kind.

    Raises:
        TableError: the table is missing.
    """
    if any(kind in series.tables for series in task.series):
        return task
    found = task.own_tables(kind)
    if not found:
        return task
    existing_table(task, folder, found[0])  # check that it exists
    tables = {kind: found[0]}
    series = Series(arm=OWN, label="", panel="", seed=0, context=1, policy="", run="", tables=tables)
    return task.model_copy(update={"series": (series,)})


def existing_table(task: PlannedFigure, folder: Path, table: str) -> Path:
    """The path of an existing table.

    Raises:
        TableError: the table is missing; the message has the command that makes it.
    """
    path = folder / f"{table}.parquet"
    if not path.exists():
        command = snakemake_command(task.target, task.scale)
        raise TableError(f"{path}: no such table ({task.target} needs it); `{command}` makes it")
    return path


def end_in_tokens(series: Series, times_context: float) -> int:
    """The position kT in tokens: k is `times_context`, and T is the training context of the series."""
    return round(times_context * series.context)


def why_not_at(measurement: Measurement, position: int, key: str = "times_context") -> str | None:
    """Why [3/4 position, position) is not in a table with bins of positions; None: it is, or the table has no bins.

    Args:
        key: the key of the quantity that gives the position.
    """
    if isinstance(measurement, RestartLoss):
        measured = [k * measurement.context for k in octaves(measurement.context, measurement.length)]
        if position in measured:
            return None
        return f"{key}: the loss after a restart is measured at {_numbers(measured)} tokens, not at {position:,}"
    return why_not_between(measurement, 3 * position // 4, position, key)


def why_not_between(measurement: Measurement, start: int, stop: int, key: str) -> str | None:
    """Why [start, stop) is not in a table with bins of positions; None: it is, or the table has no bins."""
    if (why := why_not_up_to(measurement, stop, key)) is not None or not _has_bins(measurement):
        return why
    if {start, stop} <= set(bin_edges(measurement.length).tolist()):
        return None
    bins = f"{measurement.kind} has no bins from {start:,} to {stop:,} tokens"
    return f"{key}: {bins}; expected a power of two instead of {stop:,}"


def why_not_up_to(measurement: Measurement, stop: int, key: str) -> str | None:
    """Why a table with bins of positions ends before `stop`; None: it does not, or the table has no bins."""
    if _has_bins(measurement) and stop > measurement.length:
        return f"{key}: {measurement.kind} is measured up to {measurement.length:,} tokens, not at {stop:,}"
    return None


def _has_bins(measurement: Measurement) -> TypeGuard[OfWindows]:
    return isinstance(measurement, OfWindows) and "position_from" in measurement.table.types


def why_no_state_at(measurement: Measurement, context: int, position: int) -> str | None:
    """Why the state after T or after `position` tokens is not in a table of the state.

    None: both are, or the table is another one.
    """
    if isinstance(measurement, StateStatistics):
        for key, tokens in (("arm", context), ("times_context", position)):
            if tokens not in measurement.positions:
                measured = _numbers(measurement.positions)
                return f"{key}: the state is measured after {measured} tokens, not after {tokens:,}"
    return None


def _numbers(measured: Sequence[int]) -> str:
    return ", ".join(f"{position:,}" for position in measured)


def require_measured_to(measured: int, wanted: int, series: Series) -> None:
    """Raise UndecidableError if a series was not measured up to the position `wanted`."""
    if measured < wanted:
        raise UndecidableError(
            f"'{series.arm}' is measured up to position {measured:,} at this scale; {wanted:,} is needed"
        )


def position_loss_table(panel: PanelTables, series: Series, quantity: SeriesReader, stop: int) -> pl.DataFrame:
    """The `position_loss` table of a series. It must reach position `stop`."""
    table = panel.table(series, quantity.measurement_name("position_loss"), "position_loss")
    require_measured_to(maximum(table["position_to"]), stop, series)
    return table


def state_statistics_table(panel: PanelTables, series: Series, quantity: SeriesReader, stop: int) -> pl.DataFrame:
    """The `state_statistics` table of a series. It must reach position `stop`."""
    table = panel.table(series, quantity.measurement_name("state_statistics"), "state_statistics")
    require_measured_to(maximum(table["position"]), stop, series)
    return table


def last_quarter(table: pl.DataFrame, stop: int) -> np.ndarray:
    """Mean loss of each sequence on [3/4 stop, stop), nats. (S,)"""
    return mean_loss(table, 3 * stop // 4, stop)["loss"].to_numpy()


def at_end(k: float) -> str:
    """The interval [3/4 kT, kT) as text."""
    return f"[{0.75 * k:g}T, {k:g}T)"
