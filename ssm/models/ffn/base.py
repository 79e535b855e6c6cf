"""What every ffn is: the mixers' interface, with a state that is empty for most."""

from __future__ import annotations

from ssm.models.part import Part, PartState

FfnState = PartState


class Ffn(Part):
    """One layer's ffn: it works on every position by itself, or looks a token back."""
