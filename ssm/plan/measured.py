"""Whether a figure measures what its claims read. If not, its seeds would be trained and registered for nothing."""

from __future__ import annotations

from collections.abc import Mapping

from ssm.base.errors import ConfigError
from ssm.claims.curve import CurveQuantity
from ssm.claims.quantity import ArmQuantity
from ssm.figures.figure import FigureTask
from ssm.specs.measurement import MeasurementTask


def require_measured(task: FigureTask, tasks: Mapping[str, MeasurementTask], file: str) -> None:
    """Check the claims on single arms. A claim or an arm that does not exist at this scale is no error.

    Args:
        tasks: table id -> measurement.
        file: the figure's file, for the message.

    Raises:
        ConfigError: a claim could never be decided.
    """
    series_of = {(series.panel, series.arm): series for series in task.series}
    for name, claim, panel in task.verdicts:
        quantity, where = claim.quantity, f"{file}: claims.{name}.quantity"
        if claim.models == ():
            continue  # not judged at this scale
        trivial = isinstance(quantity, ArmQuantity | CurveQuantity) and quantity.is_trivial(panel)
        if trivial and any(arm in series_of for arm in quantity.panel_arms(panel, task.series)):
            raise ConfigError(f"{where}.against: is the judged arm itself; name another arm, or no 'against'")
        if not isinstance(quantity, ArmQuantity):
            continue
        for measured, place, table in quantity.reads_at(panel):
            series, other = series_of.get(measured), series_of.get(place)
            if series is None or other is None:
                continue
            if table not in other.tables:
                raise ConfigError(f"{where}: the arm '{other.arm}' has no measurement '{table}'")
            why = quantity.why_not_in(tasks[other.tables[table]].measurement, series)
            if why is not None:
                raise ConfigError(f"{where}.{why}")
