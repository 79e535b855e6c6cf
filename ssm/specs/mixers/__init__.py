"""Specs of the mixers, one file for each. The module is in ssm/models/mixers/."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ssm.specs.base import plugin_union
from ssm.specs.mixers.base import SPECS, MixerSpecBase

if TYPE_CHECKING:
    MixerSpec = MixerSpecBase
else:
    MixerSpec = plugin_union(SPECS, "ssm.models.mixers")
