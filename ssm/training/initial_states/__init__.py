"""Initial-state policies, one file each. Interventions differ only by their policy.

To add a policy, write its spec in ssm/specs/initial_states/ and its module here.
"""

from __future__ import annotations

from ssm.specs.initial_states import InitialStateSpec
from ssm.training.distributed import ProcessGroup
from ssm.training.initial_states.base import POLICIES, Policy

POLICIES.discover()


def build_policy(spec: InitialStateSpec, seed: int, group: ProcessGroup) -> Policy:
    """The policy of a spec. Its random numbers depend on (seed, step), but not on the size of the group."""
    return POLICIES[spec.policy](spec, seed, group)
