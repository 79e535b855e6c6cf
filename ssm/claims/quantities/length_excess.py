"""The excess of the loss past t*."""

from __future__ import annotations

import math

from ssm.claims.estimate import Reading
from ssm.claims.panel import Panel
from ssm.claims.quantities.base import SeriesEstimator
from ssm.specs.figure import Series
from ssm.specs.quantities.length_excess import LengthExcess


class LengthExcessEstimator(SeriesEstimator[LengthExcess]):
    """With the standard error that the table holds."""

    def read(self, panel: Panel, series: Series) -> Reading:
        row = panel.table(series, self.spec.name_of("length_class"), "length_class").sort("length").row(-1, named=True)
        value, error = (math.nan if row[name] is None else row[name] for name in ("excess", "excess_error"))
        return Reading(value, error=error, sequences=row["excess_sequences"])

    def describe(self, panel: Panel) -> str:
        return f"largest loss of {panel.label(self.spec.arm)} past t* minus its loss at t*, nats"
