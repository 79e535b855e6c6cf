"""Initial-state policies, one file each: the only difference between interventions.

A new one: its spec here, its module in ssm/training/initial_states/, a line in both registries.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Union

from pydantic import Field

from ssm.specs.initial_states.base import InitialState
from ssm.specs.initial_states.fitted_noise import FittedNoise
from ssm.specs.initial_states.random_noise import RandomNoise
from ssm.specs.initial_states.state_passing import StatePassing
from ssm.specs.initial_states.tbtt import Tbtt
from ssm.specs.initial_states.zero import ZeroState
from ssm.specs.registry import check_specs, kind_of

SPECS: tuple[type[InitialState], ...] = (
    ZeroState,
    RandomNoise,
    FittedNoise,
    StatePassing,
    Tbtt,
)
KEY = "policy"  # by which config files name one
check_specs(__name__, SPECS, modules="ssm.training.initial_states", key=KEY)

BY_NAME = {kind_of(spec, KEY): spec for spec in SPECS}
INTERVENTIONS = tuple(name for name, spec in BY_NAME.items() if spec is not ZeroState)

if TYPE_CHECKING:
    InitialStateSpec = InitialState
else:  # a union over a tuple: the registry above is the only list
    InitialStateSpec = Annotated[Union[SPECS], Field(discriminator=KEY)]  # noqa: UP007
