"""Specs of the repairs without training, one file for each. The function is in ssm/models/repairs/."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ssm.specs.base import plugin_union
from ssm.specs.repairs.base import SPECS, Repair

if TYPE_CHECKING:
    RepairSpec = Repair
else:
    RepairSpec = plugin_union(SPECS, "ssm.models.repairs")
