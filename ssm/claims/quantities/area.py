"""The area under a curve."""

from __future__ import annotations

from typing import Literal

import numpy as np

from ssm.claims.curve import CurveQuantity


class Area(CurveQuantity):
    """The area under a curve from its first point to its last, by trapezoids, over that distance: its mean height."""

    kind: Literal["area"] = "area"
    log_x: bool = False

    def number(self, x: np.ndarray, y: np.ndarray) -> np.ndarray:
        with np.errstate(divide="ignore", invalid="ignore"):
            x = np.log(x) if self.log_x else x
            height: np.ndarray = (y[:, 1:] + y[:, :-1]) / 2 @ np.diff(x) / (x[-1] - x[0])
        return height

    def called(self) -> str:
        return "area over width" + (" on a logarithmic x" if self.log_x else "")
