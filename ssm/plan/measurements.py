"""The measurements of a figure, resolved to tasks. Each task makes one table."""

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

Tasks = dict[str, MeasurementTask]  # by the measurement's name in the figure


def series_tasks(library: Library, figure: FigureSpec, arm: str, resolved: Resolved) -> Tasks:
    """Every measurement that the figure wants for an arm.

    Raises:
        ConfigError: a length is missing, given twice or impossible; or two measurements of the arm have one name.
    """
    wanted = [entry for entry in arm_entries(figure) if entry.arms is None or arm in entry.arms]
    return tasks_beside({}, wanted, library, figure, arm, resolved)


def tasks_beside(
    before: Tasks, entries: Iterable[ArmsEntry], library: Library, figure: FigureSpec, arm: str, resolved: Resolved
) -> Tasks:
    """The tasks `before`, and the tasks of some entries for the same weights. They may read the tables of `before`.

    Raises:
        ConfigError: see `series_tasks`.
    """
    caps, run, tasks = library.workflow.dry_run, resolved.run, dict(before)
    for entry in entries:
        where = f"{library.figure_file(figure.target)}: measurements.{entry.called}"
        if entry.called in tasks:
            raise ConfigError(f"{where}: given twice for the arm '{arm}'; give one of them another 'name'")
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
    """The entries that measure arms: first those that read runs, then those that read tables of others."""
    entries = [entry for entry in figure.measurements if isinstance(entry, ArmsEntry)]
    return sorted(entries, key=lambda entry: issubclass(MEASUREMENTS[entry.kind], OfTable))


def own_tasks(library: Library, figure: FigureSpec) -> list[MeasurementTask]:
    """The tasks that need no arm: they measure untrained models, a data set, or nothing that is named.

    Raises:
        ConfigError: the figure does not name what is measured, or a measurement of its kind cannot have a key.
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
    """The task that makes this task's input table; None: this task reads no table."""
    if not isinstance(task.measurement, OfTable):
        return None
    return MeasurementTask(measurement=task.measurement.of, run=task.run, snapshot=task.snapshot)
