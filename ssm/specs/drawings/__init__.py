"""What a figure's picture is stacked from, one file each.

A new one: its spec here, how it is drawn in ssm/figures/drawings/, a line in both registries.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Union

from pydantic import Field

from ssm.specs.drawings.attention_maps import AttentionMaps
from ssm.specs.drawings.bars import Bars
from ssm.specs.drawings.base import Drawing
from ssm.specs.drawings.configuration_table import ConfigurationTable
from ssm.specs.drawings.cost_curves import CostCurves
from ssm.specs.drawings.curves import Curves
from ssm.specs.drawings.head_std import HeadStdCurves
from ssm.specs.drawings.heat_map import HeatMap
from ssm.specs.drawings.learning_curves import LearningCurves
from ssm.specs.drawings.length_classes import ClassChart
from ssm.specs.drawings.position_curves import PositionCurves
from ssm.specs.drawings.remembrance import RemembranceCurves
from ssm.specs.drawings.state_norm import StateNormCurves
from ssm.specs.drawings.sweep import SweepCurves
from ssm.specs.drawings.taxonomy_table import TaxonomyTable
from ssm.specs.drawings.text import Text
from ssm.specs.registry import check_specs

SPECS: tuple[type[Drawing], ...] = (
    Curves,
    PositionCurves,
    StateNormCurves,
    HeadStdCurves,
    RemembranceCurves,
    ClassChart,
    ConfigurationTable,
    TaxonomyTable,
    CostCurves,
    LearningCurves,
    SweepCurves,
    Bars,
    HeatMap,
    AttentionMaps,
    Text,
)
check_specs(__name__, SPECS, modules="ssm.figures.drawings")

if TYPE_CHECKING:
    DrawingSpec = Drawing
else:  # a union over a tuple: the registry above is the only list
    DrawingSpec = Annotated[Union[SPECS], Field(discriminator="kind")]  # noqa: UP007
