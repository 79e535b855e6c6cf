"""Whether a figure measures what its claims read. If not, its seeds would be trained and registered for nothing."""

from __future__ import annotations

from collections.abc import Mapping

from ssm.base.errors import ConfigError
from ssm.claims.quantity import ArmQuantity
from ssm.claims.restart import RestartQuantity
from ssm.claims.series import Series
from ssm.figures.figure import FigureTask
from ssm.specs.measurement import MeasurementTask
from ssm.specs.measurements.restart_loss import RestartLoss


def require_measured(task: FigureTask, tasks: Mapping[str, MeasurementTask], file: str) -> None:
    """Check the claims on single arms: their arms have the measurements, and those reach the positions.

    Args:
        tasks: table id -> measurement.
        file: the figure's file, for the message.

    Raises:
        ConfigError: a claim could never be decided.
    """
    for claim in task.claims:
        quantity = claim.quantity
        if not isinstance(quantity, ArmQuantity):
            continue
        for series in task.series:
            if series.arm == quantity.arm and series.panel in (claim.models or task.models):
                where = f"{file}: claims.{claim.id}.quantity"
                for name in quantity.own_names:
                    if name not in series.tables:
                        raise ConfigError(f"{where}: the arm '{series.arm}' has no measurement '{name}'")
                if isinstance(quantity, RestartQuantity):
                    _require_position(quantity, task.series, series, tasks, where)


def _require_position(
    quantity: RestartQuantity,
    all_series: tuple[Series, ...],
    series: Series,
    tasks: Mapping[str, MeasurementTask],
    where: str,
) -> None:
    field, stop = "position", quantity.position
    if quantity.times_context is not None:
        field, stop = "times_context", round(quantity.times_context * series.context)
    name, place = quantity.name_of("restart_loss"), (series.panel, quantity.restarted or series.arm, series.seed)
    for other in all_series:
        if (other.panel, other.arm, other.seed) == place and name in other.tables:
            spec = tasks[other.tables[name]].measurement
            assert isinstance(spec, RestartLoss)
            measured = [spec.context << power for power in range(64) if spec.context << power <= spec.length]
            if stop not in measured:
                there = ", ".join(f"{position:,}" for position in measured)
                raise ConfigError(
                    f"{where}.{field}: the loss after a restart is measured at {there} tokens, not at {stop:,}"
                )
