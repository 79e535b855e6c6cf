"""The measurements of a figure, resolved to tasks: one task, one table."""

from __future__ import annotations

from ssm.base.errors import ConfigError
from ssm.plan.arms import Resolved
from ssm.plan.library import Library
from ssm.plan.rehearsal import capped_size
from ssm.specs.figure import FigureSpec, MeasurementEntry
from ssm.specs.measurement import (
    Cost,
    EffectiveRemembrance,
    LengthClass,
    MeasurementTask,
    ModelSize,
    PositionLoss,
    RestartLoss,
    StateStatistics,
    Taxonomy,
)

# What a figure file leaves out. position_loss and restart_loss must agree: they are compared window by window.
SEQUENCES = {"position_loss": 64, "restart_loss": 64, "effective_remembrance": 32, "state_statistics": 16}
CURVES: dict[str, type[PositionLoss | RestartLoss | EffectiveRemembrance | StateStatistics]] = {
    "position_loss": PositionLoss,
    "restart_loss": RestartLoss,
    "effective_remembrance": EffectiveRemembrance,
    "state_statistics": StateStatistics,
}


# Measurements of the figure's named models as they are built: they need no run.
ON_SPECS: dict[str, type[ModelSize | Taxonomy | Cost]] = {"model_size": ModelSize, "taxonomy": Taxonomy, "cost": Cost}


def series_tasks(library: Library, figure: FigureSpec, arm: str, resolved: Resolved) -> dict[str, MeasurementTask]:
    """Kind -> task of every measurement that the figure wants of this arm.

    Raises:
        ConfigError: a length that is missing, given twice, or impossible; two measurements of one kind for one arm.
    """
    tasks: dict[str, MeasurementTask] = {}
    wanted = [entry for entry in figure.measurements if entry.arms is None or arm in entry.arms]
    # A class is made from the arm's position_loss, which may stand below it in the file.
    for entry in sorted(wanted, key=lambda entry: entry.kind == "length_class"):
        where = f"{library.figure_file(figure.target)}: measurements.{entry.kind}"
        if entry.kind in ON_SPECS:
            continue
        if entry.kind in tasks:
            raise ConfigError(f"{where}: stands twice for the arm '{arm}'; a figure has one of a kind per arm")
        if entry.kind == "length_class":
            tasks[entry.kind] = _class_task(entry, tasks.get("position_loss"), f"{where} (arm '{arm}')")
        else:
            tasks[entry.kind] = _curve_task(library, entry, resolved, f"{where} (arm '{arm}')")
    return tasks


def class_task(curve: MeasurementTask) -> MeasurementTask:
    """The task that classifies a position_loss curve."""
    assert curve.run is not None
    assert isinstance(curve.measurement, PositionLoss)
    measurement = LengthClass(of=curve.measurement, context=curve.run.training.context)
    return MeasurementTask(measurement=measurement, run=curve.run, snapshot=curve.snapshot)


def model_tasks(library: Library, figure: FigureSpec) -> list[MeasurementTask]:
    """The tasks that measure the figure's named models as they are built; of a data set the vocabulary is read alone.

    Raises:
        ConfigError: no models, no data set where a vocabulary is needed, or an entry that its kind does not take.
    """
    file = library.figure_file(figure.target)
    tasks = []
    for entry in figure.measurements:
        if entry.kind not in ON_SPECS:
            continue
        where = f"{file}: measurements.{entry.kind}"
        if not figure.models or (figure.data is None and entry.kind != "taxonomy"):
            raise ConfigError(f"{where}: needs 'models', and 'data' for its vocabulary")
        models = tuple(library.models.get(name, f"{file}: models") for name in figure.models)
        given = entry.model_dump(exclude={"kind"}, exclude_none=True)
        if figure.data is not None and entry.kind != "taxonomy":
            given["vocab_size"] = library.data.get(figure.data, f"{file}: data").vocab_size
        measurement = ON_SPECS[entry.kind].parse({"models": models} | given, where)
        tasks.append(MeasurementTask(measurement=measurement))
    return tasks


def curve_of(task: MeasurementTask) -> MeasurementTask | None:
    """The position_loss task whose table a length_class task reads; None for every other kind."""
    if not isinstance(task.measurement, LengthClass):
        return None
    return MeasurementTask(measurement=task.measurement.of, run=task.run, snapshot=task.snapshot)


def _class_task(entry: MeasurementEntry, curve: MeasurementTask | None, where: str) -> MeasurementTask:
    if curve is None:
        raise ConfigError(f"{where}: is made from a position_loss of the same arm, and this figure has none")
    if entry.length or entry.times_context or entry.sequences or entry.seed is not None:
        raise ConfigError(f"{where}: takes length, sequences and seed from position_loss; leave them out here")
    return class_task(curve)


def _curve_task(library: Library, entry: MeasurementEntry, resolved: Resolved, where: str) -> MeasurementTask:
    context = resolved.run.training.context
    if (entry.length is None) == (entry.times_context is None):
        raise ConfigError(f"{where}: give either 'length' (tokens) or 'times_context' (training contexts)")
    length = entry.length if entry.length is not None else max(1, round(float(entry.times_context or 0) * context))
    sequences = entry.sequences if entry.sequences is not None else SEQUENCES[entry.kind]
    length, sequences = capped_size(length, sequences, context, library.workflow.rehearsal)
    content: dict[str, object] = {"length": length, "sequences": sequences}
    if entry.seed is not None:
        content["seed"] = entry.seed
    if entry.kind == "restart_loss":
        content["context"] = context
    measurement = CURVES[entry.kind].parse(content, where)
    return MeasurementTask(measurement=measurement, run=resolved.run, snapshot=resolved.snapshot)
