"""The series and tables of one panel of a figure, which claims read."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import numpy as np

from ssm.base.columns import chosen, listed
from ssm.base.errors import TableError
from ssm.base.lazy import polars as pl
from ssm.base.schema import Schema
from ssm.base.tables import read_provenance, read_table, schema_of
from ssm.claims.estimate import UndecidableError
from ssm.claims.series import PlannedFigure, Series
from ssm.claims.snakemake_command import snakemake_command
from ssm.specs.base import Setting
from ssm.specs.measurements import SCHEMAS

F = TypeVar("F", bound=PlannedFigure)
OWN = ""  # placeholder arm for tables that belong to no arm


@dataclass(frozen=True)
class PanelTables:
    """The series and tables of one panel of a figure."""

    task: PlannedFigure
    name: str
    folder: Path  # where the tables are

    def series(self, arm: str) -> dict[int, Series]:
        """Seed -> series of an arm.

        Raises:
            UndecidableError: the arm does not exist at this scale, or its name is that of several runs.
        """
        found: dict[int, Series] = {}
        for series in self.task.series:
            if series.arm == arm and series.panel == self.name and found.setdefault(series.seed, series) != series:
                raise UndecidableError(f"several runs of seed {series.seed} bear the arm's name '{arm}'")
        if not found:
            raise UndecidableError(f"the arm '{arm}' does not exist at the scale {self.task.scale}")
        return found

    def of(self, name: str) -> PanelTables:
        """Another panel of the same figure."""
        return PanelTables(self.task, name, self.folder)

    def table(self, series: Series, name: str, kind: str) -> pl.DataFrame:
        """A series' table of the measurement with this name, which is of this kind.

        Raises:
            UndecidableError: it was not planned, or its run diverged.
            TableError: it was planned and is missing or broken.
        """
        self._insist(series, name)
        path = self.folder / f"{series.tables[name]}.parquet"
        table = read_table(path, SCHEMAS[kind])
        if read_provenance(path).get("diverged"):  # the table holds the last good weights, not those the run ends with
            raise UndecidableError(f"the run of '{series.arm}', seed {series.seed}, diverged")
        return table

    def _insist(self, series: Series, name: str) -> None:
        if name not in series.tables:
            raise UndecidableError(f"{name} is not measured for the arm '{series.arm}' at the scale {self.task.scale}")

    def any_table(self, series: Series, name: str) -> tuple[pl.DataFrame, Schema]:
        """A series' table of the measurement with this name, whatever its kind. Raises as `table`."""
        self._insist(series, name)
        schema = schema_of(self.folder / f"{series.tables[name]}.parquet", SCHEMAS)
        return self.table(series, name, schema.name), schema

    def rows(self, table: pl.DataFrame, schema: Schema, where: Mapping[str, Setting]) -> pl.DataFrame:
        """The rows of these settings.

        Raises:
            UndecidableError: there are none at this scale.
            TableError: see `ssm.base.columns.chosen`.
        """
        for column, value in where.items():
            found = chosen(table, schema, {column: value})
            if found.is_empty():
                there = listed(table, column)
                raise UndecidableError(f"{schema.name} is measured at {column} {there} at this scale, not at {value}")
            table = found
        return table

    def label(self, arm: str) -> str:
        """The arm's name for readers."""
        return self.task.labels.get(arm, arm)


def with_own_series(task: F, folder: Path, kind: str) -> F:
    """The figure with its own table of this kind, which belongs to no arm, as its one series; itself without one.

    So what reads a column of an arm's table reads the figure's own.

    Raises:
        TableError: the table is missing.
    """
    if any(kind in series.tables for series in task.series):
        return task
    found = task.own_tables(kind)
    if not found:
        return task
    planned(task, folder, found[0])  # it is there
    tables = {kind: found[0]}
    alone = Series(arm=OWN, label="", panel="", seed=0, context=1, policy="", run="", tables=tables)
    return task.model_copy(update={"series": (alone,)})


def planned(task: PlannedFigure, tables: Path, table: str) -> Path:
    """The file of a table, which is there.

    Raises:
        TableError: it is missing; with the command that makes it.
    """
    path = tables / f"{table}.parquet"
    if not path.exists():
        spec = tables.parent / "specs" / "measurements" / f"{table}.json"
        raise TableError(
            f"{path}: no such table ({task.target} needs it); "
            f"`{snakemake_command(task.target)}` makes it, by `ssm evaluate {spec} --out {path}`"
        )
    return path


def tokens(series: Series, quantity: Any) -> int:
    """kT in tokens, T being the training context of the series."""
    return round(quantity.times_context * series.context)


def insist_on(measured: int, wanted: int, series: Series) -> None:
    """Refuse to read past what was measured."""
    if measured < wanted:
        raise UndecidableError(
            f"'{series.arm}' is measured to position {measured:,} at this scale, {wanted:,} is needed"
        )


def by_sequence(table: pl.DataFrame, keys: list[str], value: str) -> np.ndarray:
    """The values as a matrix (S, K): a row a sequence, a column a combination of `keys`, both sorted."""
    column = table.sort("sequence", *keys)[value].fill_null(math.nan).to_numpy()
    return column.reshape(table["sequence"].n_unique(), -1)
