"""Tokens and seconds that a run took, from its record."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import polars as pl

from ssm.evaluation.registry import MEASURES
from ssm.specs.measurements.compute import Compute
from ssm.specs.training import RunSpec


@MEASURES.function
def compute(spec: Compute, record: Mapping[str, Any], run: RunSpec) -> pl.DataFrame:
    """One row, in the schema Compute.table; `record` is the content of run.json."""
    trained, read = record["tokens"], record.get("tokens_read", 0)
    row = {
        "stage": run.stage,
        "trained": trained,
        "read": read,
        "forward": run.training.passes * trained + read,
        "passes": run.repair.passes if run.repair is not None and _changed(record, run) else 1,
        "seconds": record["seconds"],
    }
    return pl.DataFrame([row], Compute.table.columns)


def _changed(record: Mapping[str, Any], run: RunSpec) -> bool:
    """Whether the search of a repair found something better than the unchanged model."""
    assert run.repair is not None
    return tuple(record["chosen"]) != run.repair.start(run.own_model)
