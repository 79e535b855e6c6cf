"""Repairs without training, one file each: a function of the repair's name, from a model to a repaired one."""

from __future__ import annotations

from collections.abc import Callable
from types import ModuleType

from ssm.models.readable import Readable
from ssm.models.repairs import clip_dt, reset_state, restarts, scale_a
from ssm.models.trained import Trained
from ssm.specs.registry import check_functions
from ssm.specs.repairs import SPECS, RepairSpec
from ssm.specs.repairs.base import Point

MODULES: tuple[ModuleType, ...] = (
    scale_a,
    clip_dt,
    reset_state,
    restarts,
)
REPAIRS: dict[str, Callable[[RepairSpec, Trained, Point], Readable]] = check_functions(__name__, MODULES, SPECS)


def repaired(model: Trained, repair: RepairSpec, chosen: Point) -> Readable:
    """The model with a repair, at the numbers that were chosen.

    One that is in the weights or in the configuration changes `model` itself, which is given back. Models of
    transformers are given those alone that their spec's layers have (`Repair.check`).
    """
    return REPAIRS[repair.kind](repair, model, chosen)
