"""Tables: tidy Parquet files with a declared schema, their name, provenance and digest inside.

A measurement's schema stands in its spec (ssm/specs/measurements). Here is a file for each of the others.
"""

from ssm.base.tables.metrics import METRICS
from ssm.base.tables.scan_speed import SCAN_SPEED
from ssm.base.tables.spelled_bytes import SPELLED_BYTES
from ssm.base.tables.table import read_provenance, read_table, schema_name, schema_of, write_table
from ssm.base.tables.training_speed import TRAINING_SPEED
from ssm.base.tables.verdicts import VERDICTS

__all__ = [
    "METRICS",
    "SCAN_SPEED",
    "SPELLED_BYTES",
    "TRAINING_SPEED",
    "VERDICTS",
    "read_provenance",
    "read_table",
    "schema_name",
    "schema_of",
    "write_table",
]
