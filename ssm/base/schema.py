"""The schema of a table: its name, its columns and their types.

Schemas are the contract between the code that measures and the code that draws and judges. Losses are cross-entropies
in nats per token. Positions count tokens from the start of the sequence. A bin [position_from, position_to) holds the
TARGETS that are predicted at these positions.

This module does not import polars, because the plan reads the specs of measurements, which contain their schemas.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

from ssm.base.lazy import polars as pl


@dataclass(frozen=True)
class Schema:
    """Name of a table, description of a row, and the columns in order.

    Attributes:
        row: one line that says what a row is.
        types: type of each column: `int` or `float` (64 bits), `str` or `bool`. A value may be null.
        keys: columns that identify a row. The other columns hold values.
        sample: the key that numbers random samples, over which means have their standard error.
        optional: columns that a table may lack.
    """

    name: str
    row: str
    types: dict[str, type]
    keys: tuple[str, ...] = ()
    sample: str | None = None
    may_be_empty: bool = False
    optional: frozenset[str] = frozenset()

    @cached_property
    def columns(self) -> dict[str, pl.DataType]:
        """Columns with their polars types."""
        kinds = {int: pl.Int64(), float: pl.Float64(), str: pl.String(), bool: pl.Boolean()}
        return {name: kinds[kind] for name, kind in self.types.items()}


def binned(name: str, row: str, column: str) -> Schema:
    """The schema of a value, in `column`, per sequence and bin of positions."""
    bins: dict[str, type] = {"sequence": int, "position_from": int, "position_to": int}
    return Schema(name, row, bins | {column: float}, keys=tuple(bins), sample="sequence")
