"""The measurements of a figure, resolved to tasks: one task, one table."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from ssm.base.errors import ConfigError
from ssm.figures.figure import FigureSpec
from ssm.plan.arms import Resolved
from ssm.plan.dry_run import capped_data
from ssm.plan.library import Library
from ssm.specs.data import Data
from ssm.specs.measurement import MeasurementTask
from ssm.specs.measurements import SPECS as MEASUREMENTS
from ssm.specs.measurements.base import Arm, ArmsEntry, OfArm, OfFigure, OfTable

Tasks = dict[str, MeasurementTask]  # by their measurements' names in the figure


def series_tasks(library: Library, figure: FigureSpec, arm: str, resolved: Resolved) -> Tasks:
    """Every measurement that the figure wants of this arm.

    Raises:
        ConfigError: a length that is missing, given twice, or impossible; two measurements of one name for one arm.
    """
    wanted = [entry for entry in arm_entries(figure) if entry.arms is None or arm in entry.arms]
    return tasks_beside({}, wanted, library, figure, arm, resolved)


def tasks_beside(
    before: Tasks, entries: Iterable[ArmsEntry], library: Library, figure: FigureSpec, arm: str, resolved: Resolved
) -> Tasks:
    """The tasks `before`, of the same weights, and those that entries ask for, which may be made from their tables.

    Raises:
        ConfigError: see `series_tasks`.
    """
    caps, run, tasks = library.workflow.dry_run, resolved.run, dict(before)
    for entry in entries:
        where = f"{library.figure_file(figure.target)}: measurements.{entry.called}"
        if entry.called in tasks:
            raise ConfigError(f"{where}: is given twice for the arm '{arm}'; give one of the two another 'name'")
        kind = MEASUREMENTS[entry.kind]
        assert issubclass(kind, OfArm)
        measured = {name: task.measurement for name, task in tasks.items()}
        measurement = kind.planned(entry, Arm(run, measured, _named_data(library, where)), f"{where} (arm '{arm}')")
        if caps is not None:
            measurement = measurement.capped(caps, run.training.context)
        tasks[entry.called] = MeasurementTask(measurement=measurement, run=run, snapshot=resolved.snapshot)
    return tasks


def _named_data(library: Library, where: str) -> Callable[[str], Data]:
    return lambda name: capped_data(library.data.get(name, where), library.workflow.dry_run)


def arm_entries(figure: FigureSpec) -> list[ArmsEntry]:
    """The entries that are measured of arms: on runs first, then from tables of these, which may stand above."""
    entries = [entry for entry in figure.measurements if isinstance(entry, ArmsEntry)]
    return sorted(entries, key=lambda entry: issubclass(MEASUREMENTS[entry.kind], OfTable))


def own_tasks(library: Library, figure: FigureSpec) -> list[MeasurementTask]:
    """The tasks that measure what the figure names, without an arm: its models as they are built, its task, or nothing.

    Raises:
        ConfigError: the figure does not name what is measured, or an entry that its kind does not take.
    """
    file, caps = library.figure_file(figure.target), library.workflow.dry_run
    tasks = []
    for entry in figure.measurements:
        kind = MEASUREMENTS[entry.kind]
        if not issubclass(kind, OfFigure):
            continue
        models = tuple(library.models.get(name, f"{file}: models") for name in figure.models)
        data = None if figure.data is None else _named_data(library, f"{file}: data")(figure.data)
        measurement = kind.planned(entry, models, data, f"{file}: measurements.{entry.called}")
        tasks.append(MeasurementTask(measurement=measurement if caps is None else measurement.capped(caps)))
    return tasks


def source_of(task: MeasurementTask) -> MeasurementTask | None:
    """The task whose table this one is made from; None: it is made from none."""
    if not isinstance(task.measurement, OfTable):
        return None
    return MeasurementTask(measurement=task.measurement.of, run=task.run, snapshot=task.snapshot)
