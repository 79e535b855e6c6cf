"""Initial-state policies, one file each: the only difference between interventions.

A new one: its spec in ssm/specs/initial_states/, and its module here.
"""

from __future__ import annotations

from ssm.specs.initial_states import InitialStateSpec
from ssm.training.distributed import SINGLE_PROCESS, ProcessGroup
from ssm.training.initial_states.base import POLICIES, Policy

POLICIES.discover()


def build_policy(spec: InitialStateSpec, seed: int, group: ProcessGroup = SINGLE_PROCESS) -> Policy:
    """The policy of a spec; its random numbers are a function of (seed, step), whatever the size of the group."""
    return POLICIES[spec.policy](spec, seed, group)
