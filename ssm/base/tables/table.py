"""Read and write tables: tidy Parquet files with the name of their schema, their provenance and their digest."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ssm.base.checksum import BLANK, verify_checksum, write_checksum
from ssm.base.errors import TableError, first_line, nearest, shown
from ssm.base.files import atomic_file
from ssm.base.lazy import parquet as pq
from ssm.base.lazy import polars as pl
from ssm.base.lazy import pyarrow as pa
from ssm.base.records import Provenance
from ssm.base.schema import Schema
from ssm.base.strict_parsing import parse_json, shaped


def write_table(frame: pl.DataFrame, schema: Schema, path: str | Path, provenance: dict[str, Any]) -> None:
    """Write `frame` atomically as a Parquet file with the schema's name and the provenance in its metadata.

    Raises:
        TableError: the columns or types of `frame` do not match the schema.
        OutputError: `path` cannot be written.
    """
    _check(frame, schema, Path(path))
    metadata = {"ssm.schema": schema.name, "ssm.provenance": json.dumps(provenance, sort_keys=True), "ssm.seal": BLANK}
    table = frame.to_arrow()
    # The digest covers the whole file. Checksums of pages are for other readers. Arrow's schema would be a second copy
    # of the metadata.
    options = {"compression": "zstd", "write_page_checksum": True, "store_schema": False}
    with atomic_file(path) as temporary:
        # The file is opened here, because pyarrow reads the part of a path before a colon as a protocol.
        with temporary.open("wb") as file, pq.ParquetWriter(file, table.schema, **options) as writer:
            writer.write_table(table)
            writer.add_key_value_metadata(metadata)
        write_checksum(temporary)


def read_table(path: str | Path, schema: Schema | None = None) -> pl.DataFrame:
    """Read a table. With `schema`, check that the table follows it.

    Raises:
        TableError: the file is missing, not Parquet, or changed since it was written, or the schema or rows are wrong.
    """
    table = _open(path)
    if schema is not None:
        _schema_of(table, path, {schema.name: schema})
    return _frame(table, path, schema)


def read_any(path: str | Path, schemas: Mapping[str, Schema]) -> tuple[pl.DataFrame, Schema, dict[str, Any]]:
    """Read a table that follows one of `schemas` (by name), its schema, and its provenance.

    Raises:
        TableError: as in `read_table`.
    """
    table = _open(path)
    schema = _schema_of(table, path, schemas)
    return _frame(table, path, schema), schema, _provenance(table, path)


def read_provenance(path: str | Path) -> dict[str, Any]:
    """The provenance that `write_table` stored. Raises like `read_table`."""
    return _provenance(_open(path), path)


def _open(path: str | Path) -> pa.Table:
    """Open a table, after checking that it is unchanged. All readers go through this function."""
    try:
        with Path(path).open("rb") as file:
            if file.read(4) != b"PAR1":
                raise TableError(f"{path}: not a readable Parquet file")
        verify_checksum(path, TableError, "delete it and make it again")
        # pq.read_table would import pandas if it is installed.
        # Not a Python file: if a thread of pyarrow still has one when Python ends, the process aborts.
        with pa.OSFile(os.fsencode(path)) as file, pq.ParquetFile(file, page_checksum_verification=True) as table:
            return table.read(use_threads=False)
    except (FileNotFoundError, NotADirectoryError) as error:
        raise TableError(f"{path}: no such table") from error
    except (OSError, ValueError, pa.ArrowException) as error:
        raise TableError(f"{path}: not a readable Parquet file ({first_line(error)})") from error


def _frame(table: pa.Table, path: str | Path, schema: Schema | None) -> pl.DataFrame:
    frame = pl.from_arrow(table)
    assert isinstance(frame, pl.DataFrame)
    if schema is not None:
        _check(frame, schema, Path(path))
    return frame


def _schema_of(table: pa.Table, path: str | Path, schemas: Mapping[str, Schema]) -> Schema:
    name = _metadata(table, path, "schema")
    if name not in schemas:
        hint = f", expected '{next(iter(schemas))}'" if len(schemas) == 1 else f"; {nearest(name, schemas)}"
        raise TableError(f"{path}: has the schema {shown(name)}{hint}")
    return schemas[name]


def _provenance(table: pa.Table, path: str | Path) -> dict[str, Any]:
    source = f"{path}: its provenance"
    content = parse_json(_metadata(table, path, "provenance"), source, TableError)
    return dict(shaped(content, Provenance, source, TableError))


def _metadata(table: pa.Table, path: str | Path, what: str) -> str:
    value = (table.schema.metadata or {}).get(f"ssm.{what}".encode())
    if value is None:
        raise TableError(f"{path}: has no {what}, so it was not written by ssm")
    return value.decode(errors="replace")


def _check(frame: pl.DataFrame, schema: Schema, path: Path) -> None:
    if frame.is_empty() and not schema.may_be_empty:
        raise TableError(f"{path}: has no rows; a '{schema.name}' has at least one ({schema.row})")
    for column in frame.columns:
        if column not in schema.columns:
            hint = nearest(column, schema.columns)
            raise TableError(f"{path}: column '{column}' is not in the schema '{schema.name}'; {hint}")
    for column, kind in schema.columns.items():
        if column not in frame.columns:
            if column in schema.optional:
                continue
            raise TableError(f"{path}: column '{column}' of the schema '{schema.name}' is missing")
        if frame.schema[column] != kind:
            raise TableError(
                f"{path}: column '{column}' is {frame.schema[column]}, the schema '{schema.name}' says {kind}"
            )
