"""How the quantities that test claims are read from tables, one file each."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from ssm.claims.estimate import Estimate
from ssm.claims.panel import Panel
from ssm.claims.quantities.area import AreaEstimator
from ssm.claims.quantities.base import Estimator
from ssm.claims.quantities.cost_exponent import CostExponentEstimator
from ssm.claims.quantities.crossing import CrossingEstimator
from ssm.claims.quantities.drifting_heads import DriftingHeadsEstimator
from ssm.claims.quantities.effect import EffectEstimator
from ssm.claims.quantities.extreme import ExtremeEstimator
from ssm.claims.quantities.instability import InstabilityEstimator
from ssm.claims.quantities.optimum import OptimumEstimator
from ssm.claims.quantities.order import OrderEstimator
from ssm.claims.quantities.own_table import OwnTableEstimator
from ssm.claims.quantities.parameter_ratio import ParameterRatioEstimator
from ssm.claims.quantities.perplexity_at import PerplexityAtEstimator
from ssm.claims.quantities.perplexity_growth import PerplexityGrowthEstimator
from ssm.claims.quantities.piece_depth import PieceDepthEstimator
from ssm.claims.quantities.piece_share import PieceShareEstimator
from ssm.claims.quantities.r_squared import RSquaredEstimator
from ssm.claims.quantities.reach import ReachEstimator
from ssm.claims.quantities.remembrance import RemembranceEstimator
from ssm.claims.quantities.restart_ratio import RestartRatioEstimator
from ssm.claims.quantities.shape_difference import ShapeDifferenceEstimator
from ssm.claims.quantities.slope import SlopeEstimator
from ssm.claims.quantities.state_norm_growth import StateNormGrowthEstimator
from ssm.claims.quantities.system_property import SystemPropertyEstimator
from ssm.claims.quantities.value_at import ValueAtEstimator
from ssm.specs.figure import FigureTask
from ssm.specs.quantities import SPECS, QuantitySpec
from ssm.specs.registry import check_modules

ESTIMATORS: dict[str, type[Estimator[Any]]] = {
    "restart_ratio": RestartRatioEstimator,
    "perplexity_growth": PerplexityGrowthEstimator,
    "perplexity_at": PerplexityAtEstimator,
    "state_norm_growth": StateNormGrowthEstimator,
    "drifting_heads": DriftingHeadsEstimator,
    "remembrance": RemembranceEstimator,
    "shape_difference": ShapeDifferenceEstimator,
    "instability": InstabilityEstimator,
    "value_at": ValueAtEstimator,
    "slope": SlopeEstimator,
    "crossing": CrossingEstimator,
    "reach": ReachEstimator,
    "area": AreaEstimator,
    "order": OrderEstimator,
    "r_squared": RSquaredEstimator,
    "extreme": ExtremeEstimator,
    "optimum": OptimumEstimator,
    "effect": EffectEstimator,
    "parameter_ratio": ParameterRatioEstimator,
    "system_property": SystemPropertyEstimator,
    "cost_exponent": CostExponentEstimator,
    "piece_share": PieceShareEstimator,
    "piece_depth": PieceDepthEstimator,
    "own_table": OwnTableEstimator,
}
check_modules(__name__, ESTIMATORS, SPECS)


def estimate(task: FigureTask, panel: str, quantity: QuantitySpec, folder: Path) -> Estimate:
    """The quantity of a claim, with its 95% interval.

    Args:
        panel: the named model of the panel.
        folder: where the tables are.

    Raises:
        UndecidableError: the tables cannot give it at this scale.
        TableError: a planned table is missing or broken.
    """
    return ESTIMATORS[quantity.kind](quantity).estimate(Panel(task, panel, folder))


def words(panel: Panel, quantity: QuantitySpec) -> str:
    """What is computed, in one line."""
    return ESTIMATORS[quantity.kind](quantity).words(panel)
