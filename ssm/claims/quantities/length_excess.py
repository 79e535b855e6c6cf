"""The excess of the loss past t*."""

from __future__ import annotations

import math
from typing import ClassVar, Literal

from ssm.claims.estimate import Reading
from ssm.claims.panel import Panel
from ssm.claims.quantity import ArmQuantity
from ssm.claims.series import Series


class LengthExcess(ArmQuantity):
    """Largest loss past t* minus the loss at t*, nats (lg Def. 3.2; 0 or less: it length-generalizes)."""

    kind: Literal["length_excess"] = "length_excess"
    reads: ClassVar[tuple[str, ...]] = ("length_class",)

    def read(self, panel: Panel, series: Series) -> Reading:
        """With the standard error that the table holds."""
        row = panel.table(series, self.name_of("length_class"), "length_class").sort("length").row(-1, named=True)
        value, error = (math.nan if row[name] is None else row[name] for name in ("excess", "excess_error"))
        return Reading(value, error=error, sequences=row["excess_sequences"])

    def describe(self, panel: Panel) -> str:
        return f"largest loss of {panel.label(self.arm)} past t* minus its loss at t*, nats"
