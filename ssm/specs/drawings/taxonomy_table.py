"""The spec of the table of systems."""

from __future__ import annotations

from typing import ClassVar, Literal

from ssm.specs.drawings.base import Drawing


class TaxonomyTable(Drawing):
    """Systems with their recurrence, as a table: what is declared, and what was measured on the module."""

    kind: Literal["taxonomy_table"] = "taxonomy_table"
    reads: ClassVar[tuple[str, ...]] = ("taxonomy",)
