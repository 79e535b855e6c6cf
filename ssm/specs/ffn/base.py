"""What the specs of all ffns share."""

from __future__ import annotations

from ssm.specs.part import PartSpec


class FfnSpecBase(PartSpec):
    """The second half of a block: it works on every position by itself, or looks a token back."""
