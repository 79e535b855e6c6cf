"""What a table declares of itself: its name, its columns and their types.

Schemas are the contract between the layer that measures and the layers that draw and judge. Losses are natural-log
cross-entropies in nats per token; positions count tokens from the start of the sequence, and a bin
[position_from, position_to) holds the TARGETS predicted at these positions.

This module does not import polars: the plan reads the specs of measurements, and these hold their schemas.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

from ssm.base.lazy import polars as pl


@dataclass(frozen=True)
class Schema:
    """The name of a table, one line on what a row is, and the columns in order.

    Attributes:
        types: of each column `int` or `float`, both of 64 bits, `str` or `bool`. A value may be null.
        keys: the columns that say what a row is about; the others hold what was found there.
        sample: the key that numbers what was drawn at random, and over which a mean has its error.
        optional: columns that a table need not have.
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
        """The columns with their types in polars."""
        kinds = {int: pl.Int64(), float: pl.Float64(), str: pl.String(), bool: pl.Boolean()}
        return {name: kinds[kind] for name, kind in self.types.items()}


def binned(name: str, row: str, column: str) -> Schema:
    """The schema of values, in `column`, by sequence and bin of positions."""
    bins: dict[str, type] = {"sequence": int, "position_from": int, "position_to": int}
    return Schema(name, row, bins | {column: float}, keys=tuple(bins), sample="sequence")
