"""What tests a claim, one file each.

A new one: its spec here, how it is read in ssm/claims/quantities/, a line in both registries.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Union

from pydantic import Field

from ssm.specs.quantities.area import Area
from ssm.specs.quantities.base import Quantity
from ssm.specs.quantities.cost_exponent import CostExponent
from ssm.specs.quantities.crossing import Crossing
from ssm.specs.quantities.drifting_heads import DriftingHeads
from ssm.specs.quantities.effect import Effect
from ssm.specs.quantities.extreme import Extreme
from ssm.specs.quantities.instability import Instability
from ssm.specs.quantities.optimum import Optimum
from ssm.specs.quantities.order import Order
from ssm.specs.quantities.own_table import OwnTable
from ssm.specs.quantities.parameter_ratio import ParameterRatio
from ssm.specs.quantities.perplexity_at import PerplexityAt
from ssm.specs.quantities.perplexity_growth import PerplexityGrowth
from ssm.specs.quantities.piece_depth import PieceDepth
from ssm.specs.quantities.piece_share import PieceShare
from ssm.specs.quantities.r_squared import RSquared
from ssm.specs.quantities.reach import Reach
from ssm.specs.quantities.remembrance import Remembrance
from ssm.specs.quantities.restart_ratio import RestartRatio
from ssm.specs.quantities.shape_difference import ShapeDifference
from ssm.specs.quantities.slope import Slope
from ssm.specs.quantities.state_norm_growth import StateNormGrowth
from ssm.specs.quantities.system_property import SystemProperty
from ssm.specs.quantities.value_at import ValueAt
from ssm.specs.registry import check_specs, kind_of

SPECS: tuple[type[Quantity], ...] = (
    RestartRatio,
    PerplexityGrowth,
    PerplexityAt,
    StateNormGrowth,
    DriftingHeads,
    Remembrance,
    ShapeDifference,
    Instability,
    ValueAt,
    Slope,
    Crossing,
    Reach,
    Area,
    Order,
    RSquared,
    Extreme,
    Optimum,
    Effect,
    ParameterRatio,
    SystemProperty,
    CostExponent,
    PieceShare,
    PieceDepth,
    OwnTable,
)
check_specs(__name__, SPECS, modules="ssm.claims.quantities")

OF_ARMS = {kind_of(spec): spec for spec in SPECS if "arm" in spec.model_fields}  # what a sweep can be of

if TYPE_CHECKING:
    QuantitySpec = Quantity
else:  # a union over a tuple: the registry above is the only list
    QuantitySpec = Annotated[Union[SPECS], Field(discriminator="kind")]  # noqa: UP007
