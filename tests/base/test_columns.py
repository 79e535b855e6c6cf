"""Any column of any table by hand: what was drawn at random counts alike, whatever the number of its rows."""

from __future__ import annotations

import math

import numpy as np
import polars as pl
import pytest

from ssm.base.columns import by_sample, matrices, maximum, means, rows_where
from ssm.base.errors import TableError
from ssm.base.schema import Schema

SCHEMA = Schema(
    "answers",
    "one example, one question",
    {"example": int, "length": int, "group": str, "right": bool, "share": float},
    keys=("example", "length", "group"),
    sample="example",
)
ROWS = [  # example 0 has two questions at length 8, and one at 16
    (0, 8, "a", True, 1.0),
    (0, 8, "b", False, 0.5),
    (1, 8, "a", True, 0.25),
    (0, 16, "a", False, 0.0),
    (1, 16, "a", False, None),
]
TABLE = pl.DataFrame(ROWS, schema=SCHEMA.columns, orient="row")


def test_samples_count_alike_whatever_the_number_of_their_rows() -> None:
    eight = rows_where(TABLE, SCHEMA, {"length": 8})
    assert by_sample(eight, SCHEMA, "right").tolist() == [0.5, 1.0]
    assert by_sample(eight, SCHEMA, "share").tolist() == [0.75, 0.25]
    frame = means(TABLE, SCHEMA, ["length"], "right")
    assert frame["length"].to_list() == [8, 16]
    assert frame["value"].to_list() == [0.75, 0.0]
    assert frame["error"].to_list() == pytest.approx([np.std([0.5, 1.0], ddof=1) / math.sqrt(2), 0.0])


def test_what_is_missing_stays_missing() -> None:
    frame = means(TABLE, SCHEMA, ["length"], "share")
    assert frame["value"][0] == 0.5
    assert math.isnan(frame["value"][1])


def test_a_table_without_samples_has_rows_and_no_error() -> None:
    """Every row is one."""
    plain = Schema("plain", "a row", {"x": int, "y": float}, keys=("x",))
    table = pl.DataFrame({"x": [1, 1, 2], "y": [1.0, 3.0, 5.0]}, schema=plain.columns)
    assert by_sample(table, plain, "y").tolist() == [1.0, 3.0, 5.0]
    frame = means(table, plain, ["x"], "y")
    assert frame["value"].to_list() == [2.0, 5.0]
    assert frame["error"][0] == 1.0
    assert math.isnan(frame["error"][1])


def test_curves_of_the_same_samples_are_one_matrix_and_of_others_one_each() -> None:
    x, (together,) = matrices(TABLE, SCHEMA, "length", "right")
    assert x.tolist() == [8.0, 16.0]
    assert together.tolist() == [[0.5, 0.0], [1.0, 0.0]]
    apart = TABLE.filter((pl.col("example") == 0) | (pl.col("length") == 16))
    x, found = matrices(apart, SCHEMA, "length", "right")
    assert [one.tolist() for one in found] == [[[0.5]], [[0.0], [0.0]]]


def test_rows_without_a_place_are_on_no_curve() -> None:
    nowhere = TABLE.with_columns(pl.when(pl.col("group") == "a").then("length").alias("length"))
    x, (values,) = matrices(nowhere.head(3), SCHEMA, "length", "share")
    assert x.tolist() == [8.0]
    assert values.tolist() == [[1.0], [0.25]]


def test_a_setting_is_a_value_that_the_column_can_have() -> None:
    assert rows_where(TABLE, SCHEMA, {"group": "b", "right": False}).height == 1
    assert rows_where(TABLE, SCHEMA, {"length": 8.0}).height == 3
    assert rows_where(TABLE, SCHEMA, {"length": 7}).is_empty()
    for where in ({"length": "8"}, {"length": True}, {"right": 1}, {"group": 8}):
        with pytest.raises(TableError, match="cannot be"):
            rows_where(TABLE, SCHEMA, where)
    with pytest.raises(TableError, match="no column 'lengt'; did you mean 'length'"):
        rows_where(TABLE, SCHEMA, {"lengt": 8})
    with pytest.raises(TableError, match="has no numbers"):
        by_sample(TABLE, SCHEMA, "group")


def test_the_maximum_of_a_column() -> None:
    assert maximum(pl.Series([3, None, 7, 5], dtype=pl.UInt32)) == 7
    assert maximum(pl.Series([], dtype=pl.Int64)) == 0
