"""The share of seeds that solve a task."""

from __future__ import annotations

import math
from typing import ClassVar, Literal

from ssm.base.columns import by_sample
from ssm.claims.estimate import Reading
from ssm.claims.panel_tables import PanelTables
from ssm.claims.quantity import ArmQuantity
from ssm.claims.reader import ColumnReader
from ssm.claims.series import Series


class SolvedShare(ColumnReader, ArmQuantity):
    """The share of seeds that solve a task: the mean of a column, over selected rows, is at least `level`.

    Two arms are compared by the difference of their shares, paired by seed.
    """

    kind: Literal["solved_share"] = "solved_share"
    of_two_kinds: ClassVar[bool] = True
    bounds: ClassVar[tuple[float, float]] = (0.0, 1.0)
    level: float  # smallest mean of the column with which a seed counts as solved

    def read(self, panel: PanelTables, series: Series) -> Reading:
        """1 or 0. The examples of one seed do not measure the spread between seeds, so a reading has no sequences."""
        table, schema = panel.any_table(series, self.measurement)
        mean = float(by_sample(panel.rows(table, schema, self.where), schema, self.column).mean())
        return Reading(math.nan if math.isnan(mean) else float(mean >= self.level))

    def describe(self, panel: PanelTables) -> str:
        where = "".join(f", {column} {value}" for column, value in self.where.items())
        mean = f"mean {self.column} of at least {self.level:g} in {self.measurement}{where}"
        return f"share of seeds of {panel.label(self.arm)} with a {mean}"
