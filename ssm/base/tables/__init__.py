"""Tables: tidy Parquet files that contain the name of their schema, their provenance and their digest.

The schema of a measurement is in its spec (ssm/specs/measurements). This package has the other schemas.
"""

from ssm.base.tables.inference_speed import INFERENCE_SPEED
from ssm.base.tables.metrics import METRICS
from ssm.base.tables.scan_speed import SCAN_SPEED
from ssm.base.tables.spelled_bytes import SPELLED_BYTES
from ssm.base.tables.table import read_any, read_provenance, read_table, write_table
from ssm.base.tables.training_speed import TRAINING_SPEED
from ssm.base.tables.verdicts import VERDICTS

__all__ = [
    "INFERENCE_SPEED",
    "METRICS",
    "SCAN_SPEED",
    "SPELLED_BYTES",
    "TRAINING_SPEED",
    "VERDICTS",
    "read_any",
    "read_provenance",
    "read_table",
    "write_table",
]
