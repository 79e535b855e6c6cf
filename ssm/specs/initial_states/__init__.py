"""Initial-state policies, one file each: the only difference between interventions.

A new one: its spec here, and its module in ssm/training/initial_states/.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Union

from pydantic import Field

from ssm.base.plugin_modules import check_files
from ssm.specs.initial_states.base import KEY, SPECS, InitialState

SPECS.discover()
check_files(SPECS, "ssm.training.initial_states")

INTERVENTIONS = tuple(name for name in SPECS if name != "zero")

if TYPE_CHECKING:
    InitialStateSpec = InitialState
else:  # a union over what the folder holds
    InitialStateSpec = Annotated[Union[tuple(SPECS.values())], Field(discriminator=KEY)]  # noqa: UP007
