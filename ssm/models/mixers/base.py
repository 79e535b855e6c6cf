"""What every mixer is: a sequence from a state to a state, and the same recurrence one token at a time."""

from __future__ import annotations

from ssm.models.part import Part, PartState

MixerState = PartState  # "memory" (B, H, ...) is the recurrence's own


class Mixer(Part):
    """One layer's recurrence (or attention) with what its paper puts around it: projections, convolution, gate."""
