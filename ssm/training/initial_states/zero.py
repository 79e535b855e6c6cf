"""The zero state: the base model, and the control for all other policies."""

from __future__ import annotations

import torch

from ssm.models.state import State
from ssm.training.initial_states.base import Policy


class ZeroPolicy(Policy, kind="zero"):
    """Every sequence starts from the zero state."""

    def start(self, step: int, batch_size: int, device: torch.device) -> State | None:
        return None
