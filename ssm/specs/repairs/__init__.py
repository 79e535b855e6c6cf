"""Repairs without training, one file each: what is done to a trained model, or to how it is read.

A new one: its spec here, its function in ssm/models/repairs/, a line in both registries.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Union

from pydantic import Field

from ssm.specs.registry import check_specs, kind_of
from ssm.specs.repairs.base import Repair
from ssm.specs.repairs.clip_dt import ClipDt
from ssm.specs.repairs.reset_state import ResetState
from ssm.specs.repairs.restarts import Restarts
from ssm.specs.repairs.scale_a import ScaleA

SPECS: tuple[type[Repair], ...] = (
    ScaleA,
    ClipDt,
    ResetState,
    Restarts,
)
check_specs(__name__, SPECS, modules="ssm.models.repairs")

BY_KIND = {kind_of(spec): spec for spec in SPECS}

if TYPE_CHECKING:
    RepairSpec = Repair
else:  # a union over a tuple: the registry above is the only list
    RepairSpec = Annotated[Union[SPECS], Field(discriminator="kind")]  # noqa: UP007
