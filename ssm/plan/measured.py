"""Whether a figure measures what its claims read. If not, its seeds would be trained and registered for nothing."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from ssm.base.errors import ConfigError
from ssm.claims.curve import CurveQuantity
from ssm.claims.quantity import ArmQuantity, ComparedQuantity, Quantity
from ssm.claims.series import Series
from ssm.figures.figure import FigureTask
from ssm.specs.measurement import MeasurementTask


def require_measured(task: FigureTask, tasks: Mapping[str, MeasurementTask], file: str) -> None:
    """Check the claims on single arms and on sweeps. A claim or an arm that does not exist at this scale is no error.

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
        trivial = isinstance(quantity, ComparedQuantity) and quantity.is_trivial(panel)
        if trivial and any(arm in series_of for arm in quantity.panel_arms(panel, task.series)):
            raise ConfigError(f"{where}.against: is the judged arm itself; name another arm, or no 'against'")
        for key, one in _of_arms(quantity, panel, task.series):
            for measured, place, table in one.reads_at(panel):
                series, other = series_of.get(measured), series_of.get(place)
                if series is None or other is None:
                    continue
                if table not in other.tables:
                    raise ConfigError(f"{where}{key}: the arm '{other.arm}' has no measurement '{table}'")
                why = one.why_not_in(tasks[other.tables[table]].measurement, series)
                if why is not None:
                    raise ConfigError(f"{where}{key}.{why}")


def _of_arms(quantity: Quantity, panel: str, series: Sequence[Series]) -> Iterator[tuple[str, ArmQuantity]]:
    """The quantities of single arms that a quantity reads, each with its key."""
    if isinstance(quantity, ArmQuantity):
        yield "", quantity
    elif isinstance(quantity, CurveQuantity) and quantity.sweep is not None:
        sweep = quantity.sweep
        families = (False, True) if sweep.compared else (False,)
        arms = {arm for against in families for _, arm in sweep.members(panel, series, against)}
        parts = ((".sweep.of", sweep.quantity(arm)) for arm in sorted(arms))
        yield from ((key, part) for key, part in parts if isinstance(part, ArmQuantity))
