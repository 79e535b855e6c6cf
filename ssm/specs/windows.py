"""The longest windows that jobs read from a token store."""

from __future__ import annotations

from pydantic import NonNegativeInt

from ssm.specs.base import Spec


class LongestWindows(Spec):
    """Tokens of the longest window of each split that is not trained on; 0: no job reads a window."""

    held_out: NonNegativeInt = 0  # measurements
    choice: NonNegativeInt = 0  # repairs, which choose their numbers on this text
