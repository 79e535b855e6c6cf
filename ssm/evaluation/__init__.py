"""Measuring, one file for each kind of measurement, by its name; `measure.py` makes tables with what is listed here.

The file holds a function of the same name, which gives a table in its kind's schema. A measurement of a run is given
(spec, subject); one of another table (spec, that table); one of a run's metrics (spec, metrics, whether it diverged);
one of its record (spec, record, run);
one of models as they are built, or of nothing (spec, device); one of a task (spec, its token store). A new one: see
ssm/specs/measurements/.
"""

from __future__ import annotations

from collections.abc import Callable
from types import ModuleType

import polars as pl

from ssm.evaluation import (
    accuracy,
    attack,
    attention_map,
    compute,
    context_loss,
    corruption,
    cost,
    decay_range,
    effective_remembrance,
    extrapolation_error,
    influence,
    learning_curve,
    length_class,
    memory_length,
    model_size,
    overflow,
    passkey,
    position_loss,
    restart_loss,
    sample,
    smoothness,
    state_statistics,
    taxonomy,
    validation_loss,
)
from ssm.specs.measurements import SPECS
from ssm.specs.registry import check_functions

MODULES: tuple[ModuleType, ...] = (
    position_loss,
    restart_loss,
    context_loss,
    validation_loss,
    effective_remembrance,
    state_statistics,
    influence,
    smoothness,
    decay_range,
    memory_length,
    passkey,
    learning_curve,
    compute,
    accuracy,
    attention_map,
    attack,
    corruption,
    length_class,
    model_size,
    taxonomy,
    cost,
    sample,
    extrapolation_error,
    overflow,
)
MEASURES: dict[str, Callable[..., pl.DataFrame]] = check_functions(__name__, MODULES, SPECS)
