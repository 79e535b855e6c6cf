"""Measurements, one file each: every one gives one table.

A new one: its spec with the table's schema here, its function in ssm/evaluation/, a line in both registries.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Union

from pydantic import Field

from ssm.specs.measurements.accuracy import Accuracy
from ssm.specs.measurements.attack import Attack
from ssm.specs.measurements.attention_map import AttentionMap
from ssm.specs.measurements.base import Entry, Measurement, entry_of
from ssm.specs.measurements.compute import Compute
from ssm.specs.measurements.context_loss import ContextLoss
from ssm.specs.measurements.corruption import Corruption
from ssm.specs.measurements.cost import Cost
from ssm.specs.measurements.decay_range import DecayRange
from ssm.specs.measurements.effective_remembrance import EffectiveRemembrance
from ssm.specs.measurements.extrapolation_error import ExtrapolationError
from ssm.specs.measurements.influence import Influence
from ssm.specs.measurements.learning_curve import LearningCurve
from ssm.specs.measurements.length_class import LengthClass
from ssm.specs.measurements.memory_length import MemoryLength
from ssm.specs.measurements.model_size import ModelSize
from ssm.specs.measurements.overflow import Overflow
from ssm.specs.measurements.passkey import Passkey
from ssm.specs.measurements.position_loss import PositionLoss
from ssm.specs.measurements.restart_loss import RestartLoss
from ssm.specs.measurements.sample import Sample
from ssm.specs.measurements.smoothness import Smoothness
from ssm.specs.measurements.state_statistics import StateStatistics
from ssm.specs.measurements.taxonomy import Taxonomy
from ssm.specs.measurements.validation_loss import ValidationLoss
from ssm.specs.registry import check_specs, kind_of

SPECS: tuple[type[Measurement], ...] = (
    PositionLoss,
    RestartLoss,
    ContextLoss,
    ValidationLoss,
    EffectiveRemembrance,
    StateStatistics,
    Influence,
    Smoothness,
    DecayRange,
    MemoryLength,
    Passkey,
    LearningCurve,
    Compute,
    Accuracy,
    AttentionMap,
    Corruption,
    Attack,
    LengthClass,
    ModelSize,
    Taxonomy,
    Cost,
    Sample,
    ExtrapolationError,
    Overflow,
)
check_specs(__name__, SPECS, modules="ssm.evaluation")

BY_KIND = {kind_of(spec): spec for spec in SPECS}
SCHEMAS = {kind: spec.table for kind, spec in BY_KIND.items()}
ENTRIES = tuple(entry_of(spec) for spec in SPECS)

if TYPE_CHECKING:
    MeasurementSpec = Measurement
    MeasurementEntry = Entry
else:  # unions over tuples: the registry above is the only list
    MeasurementSpec = Annotated[Union[SPECS], Field(discriminator="kind")]  # noqa: UP007
    MeasurementEntry = Annotated[Union[ENTRIES], Field(discriminator="kind")]  # noqa: UP007
