"""Specs of the feed-forward layers, one file for each. The module is in ssm/models/ffn/."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ssm.specs.base import plugin_union
from ssm.specs.ffn.base import SPECS, FfnSpecBase

if TYPE_CHECKING:
    FfnSpec = FfnSpecBase
else:
    FfnSpec = plugin_union(SPECS, "ssm.models.ffn")
