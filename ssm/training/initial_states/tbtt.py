"""Truncated backpropagation through time (lg Section 4.5): State Passing, but each row reads one text in order.

Gradients stop at the border between two chunks.
"""

from __future__ import annotations

from ssm.training.initial_states.state_passing import StatePassingPolicy


class TbttPolicy(StatePassingPolicy, kind="tbtt"):
    """The same policy as State Passing. The data order makes the difference."""
