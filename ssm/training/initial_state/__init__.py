"""Initial-state policies, one file each: the only difference between interventions."""

from __future__ import annotations

from ssm.specs.training import InitialStateSpec
from ssm.training.distributed import ALONE, Team
from ssm.training.initial_state.fitted_noise import FittedNoisePolicy
from ssm.training.initial_state.policy import Policy, ZeroPolicy
from ssm.training.initial_state.random_noise import RandomNoisePolicy
from ssm.training.initial_state.state_passing import PassedStatePolicy

POLICIES: dict[str, type[Policy]] = {
    "zero": ZeroPolicy,
    "random_noise": RandomNoisePolicy,
    "fitted_noise": FittedNoisePolicy,
    "state_passing": PassedStatePolicy,
    "tbtt": PassedStatePolicy,  # the same policy in stream order: over consecutive chunks
}


def build_policy(spec: InitialStateSpec, seed: int, team: Team = ALONE) -> Policy:
    """The policy of a spec; its random numbers are a function of (seed, step), whatever the size of the team."""
    return POLICIES[spec.policy](spec, seed, team)
