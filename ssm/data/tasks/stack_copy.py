"""Copying in stack order: $ string | string backwards ."""

from __future__ import annotations

import numpy as np

from ssm.data.tasks.strings import StringLayout, Strings


class StackCopy(Strings, kind="stack_copy"):
    """The answer repeats the letters in reverse order."""

    def source(self, letters: np.ndarray, at: StringLayout) -> np.ndarray:
        return at.start + 2 * at.length + 2 - at.within
