"""Tables: tidy Parquet files with a declared schema, one file here for each schema, by its name.

Schemas are the contract between the floor that measures and the floor that draws and judges. Losses are natural-log
cross-entropies in nats per token; positions count tokens from the start of the sequence, and a bin
[position_from, position_to) holds the TARGETS predicted at these positions.

A measurement's schema bears the measurement's name. A new one: its file here, and a line below.
"""

from __future__ import annotations

from pathlib import Path

from ssm.base.errors import TableError, nearest, shown
from ssm.base.tables.accuracy import ACCURACY
from ssm.base.tables.attack import ATTACK
from ssm.base.tables.attention_map import ATTENTION_MAP
from ssm.base.tables.compute import COMPUTE
from ssm.base.tables.context_loss import CONTEXT_LOSS
from ssm.base.tables.corruption import CORRUPTION
from ssm.base.tables.cost import COST
from ssm.base.tables.decay_range import DECAY_RANGE
from ssm.base.tables.effective_remembrance import EFFECTIVE_REMEMBRANCE
from ssm.base.tables.extrapolation_error import EXTRAPOLATION_ERROR
from ssm.base.tables.influence import INFLUENCE
from ssm.base.tables.learning_curve import LEARNING_CURVE
from ssm.base.tables.length_class import LENGTH_CLASS
from ssm.base.tables.memory_length import MEMORY_LENGTH
from ssm.base.tables.metrics import METRICS
from ssm.base.tables.model_size import MODEL_SIZE
from ssm.base.tables.overflow import OVERFLOW
from ssm.base.tables.passkey import PASSKEY
from ssm.base.tables.position_loss import POSITION_LOSS
from ssm.base.tables.restart_loss import RESTART_LOSS
from ssm.base.tables.sample import SAMPLE
from ssm.base.tables.scan_speed import SCAN_SPEED
from ssm.base.tables.smoothness import SMOOTHNESS
from ssm.base.tables.spelled_bytes import SPELLED_BYTES
from ssm.base.tables.state_statistics import STATE_STATISTICS
from ssm.base.tables.table import Schema, read_provenance, read_table, schema_name, write_table
from ssm.base.tables.taxonomy import TAXONOMY
from ssm.base.tables.training_speed import TRAINING_SPEED
from ssm.base.tables.validation_loss import VALIDATION_LOSS
from ssm.base.tables.verdicts import VERDICTS

ALL: tuple[Schema, ...] = (
    METRICS,
    POSITION_LOSS,
    RESTART_LOSS,
    CONTEXT_LOSS,
    VALIDATION_LOSS,
    EFFECTIVE_REMEMBRANCE,
    STATE_STATISTICS,
    INFLUENCE,
    SMOOTHNESS,
    DECAY_RANGE,
    MEMORY_LENGTH,
    PASSKEY,
    LEARNING_CURVE,
    COMPUTE,
    ACCURACY,
    ATTENTION_MAP,
    CORRUPTION,
    ATTACK,
    LENGTH_CLASS,
    MODEL_SIZE,
    VERDICTS,
    TAXONOMY,
    COST,
    SAMPLE,
    EXTRAPOLATION_ERROR,
    OVERFLOW,
    TRAINING_SPEED,
    SCAN_SPEED,
    SPELLED_BYTES,
)
SCHEMAS = {schema.name: schema for schema in ALL}


def schema_of(path: str | Path) -> Schema:
    """The schema that a table follows. Raises as `read_table`."""
    name = schema_name(path)
    if name not in SCHEMAS:
        raise TableError(f"{path}: holds the schema {shown(name)}; {nearest(name, SCHEMAS)}")
    return SCHEMAS[name]


# and every schema
__all__ = ["SCHEMAS", "Schema", "read_provenance", "read_table", "schema_name", "schema_of", "write_table"]
