"""How many training steps a task takes."""

from __future__ import annotations

import math
from typing import ClassVar, Literal, Self

import numpy as np
from pydantic import PositiveInt, model_validator

from ssm.base.counting import counted
from ssm.base.lazy import polars as pl
from ssm.claims.estimate import Reading, UndecidableError
from ssm.claims.panel_tables import PanelTables
from ssm.claims.quantity import ArmQuantity
from ssm.claims.series import Series


class StepsToSolve(ArmQuantity):
    """Training steps until the accuracy in training reaches `level`; `within`, if it does not within so many steps.

    The mean over seeds is the restricted mean survival time. It needs no assumption on seeds that would solve the task
    later. A run that diverged before it solved the task counts as one that does not solve it.

    With `sooner`, two arms are compared by the share of seeds in which the first one is sooner, minus the share in
    which it is later.
    """

    kind: Literal["steps_to_solve"] = "steps_to_solve"
    reads: ClassVar[tuple[str, ...]] = ("learning_curve",)
    of_two_kinds: ClassVar[bool] = True
    level: float  # accuracy of a row of the learning curve from which on the task counts as solved
    within: PositiveInt  # number of steps that are looked at: usually all steps of the training
    sooner: bool = False  # true: count the seeds in which an arm is sooner; this needs fewer seeds than a mean of steps

    @model_validator(mode="after")
    def _sooner_than_another(self) -> Self:
        if self.sooner and self.against is None:
            raise ValueError("'sooner' needs 'against', the other arm")
        return self

    @property
    def bounds(self) -> tuple[float, float]:
        return (0.0, 1.0 if self.sooner else float(self.within))

    def readings(self, panel: PanelTables) -> dict[int, Reading]:
        found = super().readings(panel)
        if not self.sooner:
            return found
        return {seed: Reading(float(np.sign(-reading.value))) for seed, reading in found.items()}

    def words(self, panel: PanelTables) -> str:
        if not self.sooner:
            return super().words(panel)
        fewer = f"{self.describe(panel)}, than {self.against_words(panel)}"
        return f"share of seeds with fewer {fewer}; minus the share with more"

    def read(self, panel: PanelTables, series: Series) -> Reading:
        """The last step of the first row with this accuracy."""
        table = panel.table(series, self.measurement_name("learning_curve"), "learning_curve").sort("step")
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
                f"'{series.arm}' is trained for {counted(last, 'step')} at this scale; {self.within:,} are needed"
            )
        return Reading(float(self.within))

    def describe(self, panel: PanelTables) -> str:
        arm = panel.label(self.arm)
        return f"steps until the accuracy of {arm} in training reaches {self.level:g}, at most {self.within:,}"
