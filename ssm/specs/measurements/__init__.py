"""Specs of the measurements, one file for each, with the schema of its table. The function is in ssm/evaluation/."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Union

from pydantic import Field

from ssm.specs.base import plugin_union
from ssm.specs.measurements.base import SPECS, Entry, Measurement, entry_of

if TYPE_CHECKING:
    MeasurementSpec = Measurement
else:
    MeasurementSpec = plugin_union(SPECS, "ssm.evaluation")

SCHEMAS = {kind: spec.table for kind, spec in SPECS.items()}
ENTRIES = tuple(entry_of(kind, spec) for kind, spec in SPECS.items())

if TYPE_CHECKING:
    MeasurementEntry = Entry
else:
    MeasurementEntry = Annotated[Union[ENTRIES], Field(discriminator="kind")]  # noqa: UP007
