"""Read any column of any table: select rows, average them, and make curves of one column against another.

All random samples (sequences or examples; the schema's `sample`) have equal weight. A mean is taken over the rows of
each sample first, and then over samples. True counts as 1. Null and NaN become NaN.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from ssm.base.counting import first_of
from ssm.base.errors import TableError, nearest, shown
from ssm.base.lazy import polars as pl
from ssm.base.schema import Schema

SAMPLE = "the sample"
LISTED = 8  # values in an error


def rows_where(table: pl.DataFrame, schema: Schema, where: Mapping[str, str | bool | int | float]) -> pl.DataFrame:
    """The rows in which every column of `where` has its value. There may be none.

    Raises:
        TableError: there is no such column, or its type cannot have this value.
    """
    for column, value in where.items():
        kind = _kind(schema, column)
        fits = isinstance(value, bool if kind == pl.Boolean else int | float if kind.is_numeric() else str)
        if not fits or (isinstance(value, bool) and kind != pl.Boolean):
            raise TableError(f"the column '{column}' of a {schema.name} table is {kind} and cannot be {shown(value)}")
        table = table.filter(pl.col(column) == value)
    return table


def maximum(column: pl.Series) -> int:
    """The maximum of a column of counts or positions; 0 if it is empty."""
    return int(column.drop_nulls().to_numpy().max(initial=0))


def by_sample(table: pl.DataFrame, schema: Schema, column: str) -> np.ndarray:
    """The mean of each sample over its rows, (S,), sorted by sample. Without samples, every row is a sample.

    Raises:
        TableError: there is no such column, or it has no numbers.
    """
    return _sampled(table, schema, [], column).sort(SAMPLE)[column].to_numpy()


def means(table: pl.DataFrame, schema: Schema, along: Sequence[str], column: str) -> pl.DataFrame:
    """The mean over samples at every value of other columns.

    Args:
        along: names of columns. If there are bins of positions, `position` means the middle of a bin.

    Returns:
        The columns of `along`, `value` and `error` (standard error over samples; NaN for one sample), sorted by
        `along`.

    Raises:
        TableError: there is no such column, or `column` has no numbers.
    """
    error = (pl.col(column).std() / pl.len().sqrt()).fill_null(float("nan")).alias("error")
    grouped = _sampled(table, schema, along, column).group_by(along)
    return grouped.agg(pl.col(column).mean().alias("value"), error).sort(along)


def matrices(table: pl.DataFrame, schema: Schema, along: str, column: str) -> tuple[np.ndarray, list[np.ndarray]]:
    """A curve per sample: the values of `along` (K,), and the samples' values at each of them.

    If every sample is at every value, the result is one matrix (S, K). Otherwise samples at different values are
    independent, and the result is K arrays (S_k, 1). Rows without a value of `along` belong to no place of the curve.
    """
    wide = _sampled(table, schema, [along], column).drop_nulls(along).pivot(along, index=SAMPLE, values=column)
    values = wide.sort(SAMPLE).drop(SAMPLE)
    x = np.array([float(name) for name in values.columns])
    order = np.argsort(x)
    columns = [values[values.columns[place]] for place in order]
    if not any(one.null_count() for one in columns):
        return x[order], [np.stack([one.to_numpy() for one in columns], axis=1)]
    return x[order], [one.drop_nulls().to_numpy()[:, None] for one in columns]


def split(table: pl.DataFrame, schema: Schema, name: str) -> list[pl.DataFrame]:
    """The rows at each value of a column, ascending.

    Raises:
        TableError: there is no such column.
    """
    _kind(schema, name)
    return table.drop_nulls(name).sort(name).partition_by(name, maintain_order=True)


def is_key(schema: Schema, name: str) -> bool:
    """Whether a table has this column, or bins of it."""
    return name in schema.columns or f"{name}_from" in schema.columns


def listed(table: pl.DataFrame, column: str) -> str:
    """The values of a column as text, at most LISTED of them."""
    return first_of([shown(value) for value in table[column].unique().sort().to_list()], LISTED)


def _sampled(table: pl.DataFrame, schema: Schema, along: Sequence[str], column: str) -> pl.DataFrame:
    """Columns of `along`, SAMPLE and the mean of `column` over the rows that share them."""
    kind = _kind(schema, column)
    if not (kind.is_numeric() or kind == pl.Boolean):
        raise TableError(f"the column '{column}' of a {schema.name} table is {kind} and has no numbers")
    sample = pl.int_range(pl.len()) if schema.sample is None else pl.col(schema.sample)
    value = pl.col(column).cast(pl.Float64).fill_null(float("nan")).alias(column)
    rows = table.select(sample.alias(SAMPLE), *(_key(schema, name) for name in along), value)
    return rows.group_by([SAMPLE, *along]).agg(pl.col(column).mean())


def _key(schema: Schema, name: str) -> pl.Expr:
    """A column for the x axis, as a number if possible."""
    edges = f"{name}_from", f"{name}_to"
    if name not in schema.columns and set(edges) <= set(schema.columns):
        return ((pl.col(edges[0]) + pl.col(edges[1])) / 2).alias(name)
    return pl.col(name).cast(pl.Float64) if _kind(schema, name).is_numeric() else pl.col(name)


def _kind(schema: Schema, column: str) -> pl.DataType:
    if column not in schema.columns:
        raise TableError(f"a {schema.name} table has no column '{column}'; {nearest(column, schema.columns)}")
    return schema.columns[column]
