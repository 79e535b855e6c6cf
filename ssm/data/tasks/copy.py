"""Copying: $ string | string . (Jelassi et al. 2024)."""

from __future__ import annotations

import numpy as np

from ssm.data.tasks.strings import StringLayout, Strings


class Copy(Strings, kind="copy"):
    """The answer repeats the letters in order."""

    def source(self, letters: np.ndarray, at: StringLayout) -> np.ndarray:
        return at.start + at.within - (at.length + 1)
