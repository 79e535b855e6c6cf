"""The longest windows that jobs read from a token store after training."""

from __future__ import annotations

from pydantic import NonNegativeInt

from ssm.specs.base import Spec


class LongestWindow(Spec):
    """The longest window of one split."""

    length: NonNegativeInt = 0  # tokens; 0: no job reads a window
    reader: str = ""  # the kind of the measurement or repair that reads it


class LongestWindows(Spec):
    """The longest window of each split that is not trained on."""

    held_out: LongestWindow = LongestWindow()  # of measurements
    choice: LongestWindow = LongestWindow()  # of repairs, which choose their numbers on this text
