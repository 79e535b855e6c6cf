"""How many training steps a task takes."""

from __future__ import annotations

import math
from typing import ClassVar, Literal

from pydantic import PositiveInt

from ssm.base.lazy import polars as pl
from ssm.claims.estimate import Reading, UndecidableError
from ssm.claims.panel_tables import PanelTables
from ssm.claims.quantity import ArmQuantity
from ssm.claims.series import Series


class StepsToSolve(ArmQuantity):
    """Training steps until the accuracy in training reaches `level`; `within`, if it does not within so many steps.

    The mean over seeds is the restricted mean survival time. It needs no assumption on seeds that would solve the task
    later. A run that diverged counts as one that does not solve it.
    """

    kind: Literal["steps_to_solve"] = "steps_to_solve"
    reads: ClassVar[tuple[str, ...]] = ("learning_curve",)
    of_two_kinds: ClassVar[bool] = True
    level: float  # accuracy of a row of the learning curve from which on the task counts as solved
    within: PositiveInt  # number of steps that are looked at: usually all steps of the training

    @property
    def bounds(self) -> tuple[float, float]:
        return (0.0, float(self.within))

    def read(self, panel: PanelTables, series: Series) -> Reading:
        """The last step of the first row with this accuracy."""
        table = panel.table(series, self.name_of("learning_curve"), "learning_curve").sort("step")
        rows = table.filter(pl.col("step") <= self.within)
        accuracy, steps = rows["accuracy"].to_numpy(), rows["step"].to_numpy()
        if rows["accuracy"].null_count():
            raise UndecidableError(f"the learning curve of '{series.arm}' has no accuracy; only tasks have one")
        solved = steps[accuracy >= self.level]  # false for the last row of a diverged run, which is NaN
        if len(solved):
            return Reading(float(solved[0]))
        last, diverged = int(table["step"][-1]), math.isnan(table["loss"][-1])
        if last < self.within and not diverged:
            raise UndecidableError(
                f"'{series.arm}' is trained for {last:,} steps at this scale; {self.within:,} are needed"
            )
        return Reading(float(self.within))

    def describe(self, panel: PanelTables) -> str:
        arm = panel.label(self.arm)
        return f"steps until the accuracy of {arm} in training reaches {self.level:g}, at most {self.within:,}"
