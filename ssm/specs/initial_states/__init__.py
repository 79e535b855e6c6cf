"""Specs of the initial-state policies, one file for each. The module is in ssm/training/initial_states/."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ssm.specs.base import plugin_union
from ssm.specs.initial_states.base import KEY, SPECS, InitialState

if TYPE_CHECKING:
    InitialStateSpec = InitialState
else:
    InitialStateSpec = plugin_union(SPECS, "ssm.training.initial_states", KEY)
