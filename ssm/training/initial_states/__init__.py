"""Initial-state policies, one file each: the only difference between interventions."""

from __future__ import annotations

from ssm.specs.initial_states import KEY, SPECS, InitialStateSpec
from ssm.specs.registry import check_modules
from ssm.training.distributed import ALONE, Team
from ssm.training.initial_states.base import Policy
from ssm.training.initial_states.fitted_noise import FittedNoisePolicy
from ssm.training.initial_states.random_noise import RandomNoisePolicy
from ssm.training.initial_states.state_passing import StatePassingPolicy
from ssm.training.initial_states.tbtt import TbttPolicy
from ssm.training.initial_states.zero import ZeroPolicy

POLICIES: dict[str, type[Policy]] = {
    "zero": ZeroPolicy,
    "random_noise": RandomNoisePolicy,
    "fitted_noise": FittedNoisePolicy,
    "state_passing": StatePassingPolicy,
    "tbtt": TbttPolicy,
}
check_modules(__name__, POLICIES, SPECS, key=KEY)


def build_policy(spec: InitialStateSpec, seed: int, team: Team = ALONE) -> Policy:
    """The policy of a spec; its random numbers are a function of (seed, step), whatever the size of the team."""
    return POLICIES[spec.policy](spec, seed, team)
