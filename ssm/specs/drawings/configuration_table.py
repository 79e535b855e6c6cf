"""The spec of the table of models."""

from __future__ import annotations

from typing import ClassVar, Literal

from ssm.specs.drawings.base import Drawing


class ConfigurationTable(Drawing):
    """Named models with their configuration and size, as a table."""

    kind: Literal["configuration_table"] = "configuration_table"
    reads: ClassVar[tuple[str, ...]] = ("model_size",)
