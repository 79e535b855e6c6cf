"""The quantities: one file each, named after its kind."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ssm.claims.quantity import QUANTITIES, Quantity
from ssm.specs.base import plugin_union

if TYPE_CHECKING:
    QuantitySpec = Quantity
else:
    QuantitySpec = plugin_union(QUANTITIES)
