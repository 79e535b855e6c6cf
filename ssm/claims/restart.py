"""Quantities that compare a model with the full history with a restarted one."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar, Self

from pydantic import PositiveFloat, PositiveInt, model_validator

from ssm.claims.estimate import Reading, UndecidableError, mean_reading
from ssm.claims.panel_tables import (
    PanelTables,
    at_end,
    end_in_tokens,
    position_loss_table,
    why_not_at,
    why_not_up_to,
)
from ssm.claims.quantity import ArmQuantity, PanelArm
from ssm.claims.series import Series
from ssm.claims.table_numbers import paired_log_ratio, ratio_positions
from ssm.specs.base import Name
from ssm.specs.measurements.base import Measurement
from ssm.specs.measurements.restart_loss import RestartLoss


class RestartQuantity(ArmQuantity):
    """A number made of the perplexity with the full history, divided by that after a restart, on the same targets.

    A restart is T/2 to T tokens before a target.
    """

    reads: ClassVar[tuple[str, ...]] = ("position_loss", "restart_loss")
    later: ClassVar[frozenset[str]] = frozenset({"position"})
    # k: the targets are [3/4 kT, kT), where T is the training context of the arm
    times_context: PositiveFloat | None = None
    # instead of k: the targets are the last quarter of this many tokens, the same for every training context
    position: PositiveInt | None = None
    restarted: str | None = None  # the arm that is restarted; none: the measured arm itself
    restart_loss: Name | None = None  # name of the measurement of the restarted loss; none: restart_loss

    @model_validator(mode="after")
    def _one_place(self) -> Self:
        if (self.times_context is None) == (self.position is None):
            raise ValueError("give either 'times_context' or 'position' (tokens)")
        return self

    @property
    def own_measurement_names(self) -> tuple[str, ...]:
        return self.measurement_names if self.restarted is None else (self.measurement_name("position_loss"),)

    def arms(self) -> tuple[str, ...]:
        return super().arms() if self.restarted is None else (*super().arms(), self.restarted)

    def panel_arms(self, panel: str, series: Sequence[Series] = ()) -> tuple[PanelArm, ...]:
        places = super().panel_arms(panel)
        if self.restarted is not None:
            places = (*places, (panel, self.restarted), (self.against_panel(panel), self.restarted))
        return tuple(dict.fromkeys(places))

    def reads_at(self, panel: str) -> tuple[tuple[PanelArm, PanelArm, str], ...]:
        found = super().reads_at(panel)
        if self.restarted is None:
            return found
        name = self.measurement_name("restart_loss")
        return (*found, *((place, (place[0], self.restarted), name) for place, _, _ in found))

    def why_not_in(self, measurement: Measurement, series: Series) -> str | None:
        key = "position" if self.times_context is None else "times_context"
        why_not = why_not_at if isinstance(measurement, RestartLoss) else why_not_up_to  # where both are measured
        return why_not(measurement, self._stop(series), key)

    def canonical(self, panel: str, series: Sequence[Series] = ()) -> dict[str, Any]:
        content, itself = super().canonical(panel), self.against is None and self.restarted == self.arm
        if itself:  # equivalent to leaving `restarted` out
            content["restarted"] = None
        elif self.restarted is not None:
            content["restarted"] = self.panel_arms(panel).index((panel, self.restarted))
        return content

    def log_ratio(self, panel: PanelTables, series: Series) -> Reading:
        """The logarithm of the ratio of one arm and seed."""
        stop = self._stop(series)
        other = panel.of_seed(self.restarted or series.arm, series.seed, "the restarted arm")
        restart = panel.table(other, self.measurement_name("restart_loss"), "restart_loss")
        if stop not in ratio_positions(restart):
            raise UndecidableError(
                f"the loss after a restart of '{other.arm}' is not measured at position {stop:,} at this scale"
            )
        full = position_loss_table(panel, series, self, stop)
        return mean_reading(paired_log_ratio(full, restart, stop)["value"].to_numpy())

    def _stop(self, series: Series) -> int:
        """The end of the targets, in tokens."""
        if self.position is not None:
            return self.position
        assert self.times_context is not None
        return end_in_tokens(series, self.times_context)

    def where(self) -> str:
        """The targets as text."""
        if self.times_context is not None:
            return at_end(self.times_context)
        return f"the last quarter of {self.position:,} tokens"
