"""Truncated backpropagation through time (lg Section 4.5): State Passing over consecutive chunks of one stream per row.

The gradient stops at the border of two chunks.
"""

from __future__ import annotations

from ssm.training.initial_states.state_passing import StatePassingPolicy


class TbttPolicy(StatePassingPolicy, kind="tbtt"):
    """The same policy: the order in which text is read is the data's."""
