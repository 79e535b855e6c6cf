"""Measurements, one file each: every one gives one table.

A new one: its spec here, with the table's schema, and its function in ssm/evaluation/.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Union

from pydantic import Field

from ssm.base.plugin_modules import check_files
from ssm.specs.measurements.base import SPECS, Entry, Measurement, entry_of

SPECS.discover()
check_files(SPECS, "ssm.evaluation")

SCHEMAS = {kind: spec.table for kind, spec in SPECS.items()}
ENTRIES = tuple(entry_of(kind, spec) for kind, spec in SPECS.items())

if TYPE_CHECKING:
    MeasurementSpec = Measurement
    MeasurementEntry = Entry
else:  # unions over what the folder holds
    MeasurementSpec = Annotated[Union[tuple(SPECS.values())], Field(discriminator="kind")]  # noqa: UP007
    MeasurementEntry = Annotated[Union[ENTRIES], Field(discriminator="kind")]  # noqa: UP007
