"""The spec of curves of costs."""

from __future__ import annotations

from typing import ClassVar, Literal

from ssm.specs.drawings.base import Drawing


class CostCurves(Drawing):
    """Time and memory of a step against length, a panel per quantity and a curve per model."""

    kind: Literal["cost_curves"] = "cost_curves"
    reads: ClassVar[tuple[str, ...]] = ("cost",)
