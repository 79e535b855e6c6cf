"""Copying: $ string | string . (Jelassi et al. 2024)."""

from __future__ import annotations

import numpy as np

from ssm.data.tasks.strings import StringLayout, Strings


class Copy(Strings, kind="copy"):
    """The letters in the order in which they are read."""

    def source(self, letters: np.ndarray, at: StringLayout) -> np.ndarray:
        return at.start + at.within - (at.length + 1)
