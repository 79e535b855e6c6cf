"""The plan: all wanted data sets, runs, measurements and figures, and what each of them reads."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from ssm.base.counting import short_parameters
from ssm.base.errors import ConfigError, OutputError
from ssm.base.files import reading, write_text
from ssm.claims.series import Series
from ssm.figures.figure import FigureSpec, FigureTask
from ssm.plan.arms import ArmResolver, Resolved
from ssm.plan.dry_run import capped_figure
from ssm.plan.library import Library
from ssm.plan.measured import require_measured
from ssm.plan.measurements import arm_entries, own_tasks, series_tasks, source_of, tasks_beside
from ssm.plan.parameters import parameter_count
from ssm.plan.review import with_preregistrations
from ssm.specs.base import Spec
from ssm.specs.data import Data
from ssm.specs.measurement import MeasurementTask
from ssm.specs.measurements import SPECS as MEASUREMENTS
from ssm.specs.measurements.base import OfRun, OfTable, OfWindows
from ssm.specs.training import RunSpec
from ssm.specs.windows import LongestWindow, LongestWindows


@dataclass(frozen=True)
class Inputs:
    """The ids of the inputs of a job. None: the job has no such input."""

    data: str | None = None  # a token store
    run: str | None = None  # the parent of a training run, or the measured run
    table: str | None = None  # the table that a measurement is made from


@dataclass(frozen=True)
class Plan:
    """The graph of all work. The key of a figure is its target; all other keys are hashes of the content."""

    scale: str
    data: dict[str, Data] = field(default_factory=dict)
    runs: dict[str, RunSpec] = field(default_factory=dict)
    measurements: dict[str, MeasurementTask] = field(default_factory=dict)
    figures: dict[str, FigureTask] = field(default_factory=dict)
    inputs: dict[str, Inputs] = field(default_factory=dict)  # run id or table id -> what the job reads

    def tables_of(self, target: str) -> tuple[str, ...]:
        """The tables that a figure is drawn and judged from."""
        return self.figures[target].table_ids

    def longest_windows(self, jobs: Collection[str] | None = None) -> dict[str, LongestWindows]:
        """The longest windows that jobs read from each token store, by its id.

        Args:
            jobs: the ids of the runs and tables to consider; None: all.
        """
        longest = dict.fromkeys(self.data, LongestWindows())

        def add(job: str, split: str, length: int, reader: str) -> None:
            data = self.inputs[job].data
            if data is not None and (jobs is None or job in jobs) and length > getattr(longest[data], split).length:
                window = LongestWindow(length=length, reader=reader)
                longest[data] = longest[data].model_copy(update={split: window})

        for name, run in self.runs.items():
            if run.repair is not None:
                add(name, "choice", run.repair.length(run.training.context), run.repair.kind)
        for name, task in self.measurements.items():
            if isinstance(task.measurement, OfWindows):
                add(name, "held_out", task.measurement.length, task.measurement.kind)
        return longest

    def targets(self, paper: str | None = None, headline: bool = False) -> tuple[str, ...]:
        """The targets of all planned figures, of one paper, or of the headline figures."""
        return tuple(
            target
            for target, task in self.figures.items()
            if paper in (None, task.figure.paper) and (task.figure.headline or not headline)
        )

    def add_run(self, run: RunSpec) -> str:
        """Add a run, its parents and its data set. Returns its id."""
        name = run.id
        if name not in self.runs:
            parent = self.add_run(run.parent) if run.parent is not None else None
            self.data[run.data.id] = run.data
            self.runs[name] = run
            # An import does not wait for tokens, so that broken weights are reported early.
            self.inputs[name] = Inputs(data=run.data.id if run.checkpoint is None else None, run=parent)
        return name

    def add_measurement(self, task: MeasurementTask) -> str:
        """Add a measurement and its inputs. Returns the id of its table."""
        name = task.id
        if name not in self.measurements:
            run = self.add_run(task.run) if task.run is not None else None
            source = source_of(task)
            table = self.add_measurement(source) if source is not None else None
            data = task.data
            if data is not None:
                self.data[data.id] = data
            self.measurements[name] = task
            self.inputs[name] = Inputs(data=data.id if data is not None else None, run=run, table=table)
        return name


def make_plan(library: Library) -> Plan:
    """Plan the wanted figures of a library. Figures that need the same run or table share it.

    Raises:
        ConfigError: one line with the file, the key, what was expected and the nearest valid name.
    """
    plan = Plan(scale=library.scale)
    others = Plan(scale=library.scale)  # figures that wanted figures collect from
    for target in dict.fromkeys(other for name in library.wanted for other in library.figures[name].collect):
        others.figures[target] = _figure(library, library.figures[target], others)
    for target in library.wanted:
        figure = library.figures[target]
        plan.figures[target] = (
            _collection(library, figure, others, plan) if figure.collect else _figure(library, figure, plan)
        )
    if library.workflow.dry_run is None:
        for target, task in plan.figures.items():
            require_measured(task, plan.measurements, str(library.figure_file(target)))
            plan.figures[target] = with_preregistrations(task, plan.runs, plan.measurements, library.preregistrations)
    return plan


def _figure(library: Library, figure: FigureSpec, plan: Plan) -> FigureTask:
    """Plan a figure that does not collect from other figures. Its runs and tables are added to `plan`."""
    _require_seeds(library, figure)
    figure = capped_figure(figure, library.workflow.dry_run)
    resolver = ArmResolver(library, figure)
    series = []
    for panel in figure.models if figure.arms else ():
        for arm, entry in figure.arms.items():
            if entry is None:
                continue
            for seed in figure.seeds[: entry.seeds]:
                resolved = resolver.resolve(arm, panel, seed)
                tasks = series_tasks(library, figure, arm, resolved)
                series.append(
                    Series(
                        arm=arm,
                        label=entry.label,
                        panel=panel,
                        seed=seed,
                        context=resolved.run.training.context,
                        policy=resolved.run.training.initial_state.policy,
                        run=plan.add_run(resolved.run),
                        origin=resolved.run.start if resolved.run.parent else None,
                        published=resolved.run.published,
                        snapshot=resolved.snapshot,
                        family=entry.member.family if entry.member else None,
                        axes=entry.member.axes if entry.member else {},
                        tables={name: plan.add_measurement(task) for name, task in tasks.items()},
                    )
                )
    tables = tuple(plan.add_measurement(task) for task in own_tasks(library, figure))
    return _task(library, figure, plan, series, tables)


def _require_seeds(library: Library, figure: FigureSpec) -> None:
    """Check that no arm asks for more seeds than its figure has."""
    most = len(figure.seeds)
    for arm, entry in figure.arms.items():
        if entry is not None and entry.seeds is not None and entry.seeds > most:
            raise ConfigError(
                f"{library.figure_file(figure.target)}: arms.{arm}.seeds: {entry.seeds} seeds, but the figure has only "
                f"{most} at the scale '{library.scale}'; expected at most {most}, or no key 'seeds'"
            )


def _task(
    library: Library, figure: FigureSpec, plan: Plan, series: Iterable[Series], tables: tuple[str, ...] = ()
) -> FigureTask:
    dry_run = library.workflow.dry_run is not None
    series = tuple(series)
    titles = _titles(library, figure, series, plan)
    return FigureTask(
        figure=figure,
        scale=library.scale,
        series=series,
        titles={panel: title for panel, (title, _) in titles.items()},
        sizes={panel: size for panel, (_, size) in titles.items() if size is not None},
        tables=tables,
        rehearsal=dry_run,
    )


def _titles(
    library: Library, figure: FigureSpec, series: tuple[Series, ...], plan: Plan
) -> dict[str, tuple[str, str | None]]:
    """Panel -> its title for readers, and its number of parameters if that is equal in all arms.

    Panels that are equal in both have the names of their models in their titles.
    A figure without arms measures its models as they are initialized.
    """
    runs: dict[str, list[RunSpec]] = {}
    for member in series:
        runs.setdefault(member.panel, []).append(plan.runs[member.run])
    titles = {panel: _title(library.titles[panel], own) for panel, own in runs.items()}
    if not figure.arms:
        data = None if figure.data is None else library.data.get(figure.data, figure.target)
        for name in figure.models:
            model = library.models.get(name, figure.target)
            count = None if data is None else parameter_count(model, data.vocab_size, data.channels)
            titles[name] = library.titles[name], _size(count)
    several = Counter(titles.values())  # plots name panels, bars and curves by their titles
    return {
        panel: (title if several[title, size] == 1 else f"{title} ({panel})", size)
        for panel, (title, size) in titles.items()
    }


def _title(title: str, runs: list[RunSpec]) -> tuple[str, str | None]:
    if not set.intersection(*({mixer.kind for mixer in run.own_model.mixers()} for run in runs)):
        return "Several systems", None
    counts = {parameter_count(run.own_model, run.data.vocab_size, run.data.channels) for run in runs}
    return title, _size(counts.pop() if len(counts) == 1 else None)


def _size(parameters: int | None) -> str | None:
    return None if parameters is None else short_parameters(parameters)


def _collection(library: Library, figure: FigureSpec, others: Plan, plan: Plan) -> FigureTask:
    """Plan a figure that collects the series of other figures.

    A series is taken if it has all measurements that the figure names. (Those made from tables are added here.) If
    several series measure the same weights, the one with the longest sequences is taken. Its arm is named after the
    figure it comes from: `lg_fig5.base`. Only what is taken from `others` is added to `plan`.
    """
    file = library.figure_file(figure.target)
    if figure.arms:
        raise ConfigError(f"{file}: arms: a figure with 'collect' cannot have its own arms")
    entries = arm_entries(figure)
    from_tables = [entry for entry in entries if issubclass(MEASUREMENTS[entry.kind], OfTable)]
    needed = [entry.called for entry in entries if entry not in from_tables]
    for entry in figure.measurements:
        if entry not in from_tables and (entry not in entries or entry.given()):
            raise ConfigError(
                f"{file}: measurements.{entry.called}: a figure with 'collect' can only name measurements of arms, "
                "without other keys"
            )
    if not needed:
        raise ConfigError(f"{file}: measurements: name the measurements that are collected")
    longest: dict[tuple[str, float | None], tuple[int, Series]] = {}
    for target in figure.collect:
        for series in others.figures[target].series:
            if not set(needed) <= set(series.tables):
                continue
            length = _length(others.measurements[series.tables[needed[0]]])
            key = (series.run, series.snapshot)
            if key in longest and longest[key][0] >= length:
                continue
            named = {"arm": f"{target}.{series.arm}", "label": f"{series.label} ({target})"}
            if series.family is not None:
                named["family"] = f"{target}.{series.family}"
            longest[key] = (length, series.model_copy(update=named))
    if not longest:
        raise ConfigError(f"{file}: collect: no arm of these figures has the measurements {' and '.join(needed)}")
    collected = []
    for _, series in longest.values():
        taken = {name: others.measurements[series.tables[name]] for name in needed}
        resolved = Resolved(others.runs[series.run], series.snapshot)
        tasks = tasks_beside(taken, from_tables, library, figure, series.arm, resolved)
        tables = {name: plan.add_measurement(task) for name, task in tasks.items()}
        collected.append(series.model_copy(update={"tables": tables}))
    return _task(library, figure, plan, collected)


def _length(task: MeasurementTask) -> int:
    """Tokens of the longest sequence that a measurement is about."""
    measurement = task.measurement
    if isinstance(measurement, OfWindows):  # it may read its windows in blocks
        return measurement.length
    assert isinstance(measurement, OfRun)
    assert task.run is not None
    return measurement.read(task.run)[1]


def write_specs(plan: Plan, folder: str | Path, jobs: Collection[str] | None = None) -> int:
    """Write specs as JSON files below `folder`, such as `runs/<id>.json`. Jobs read nothing else of a plan.

    Files with the right content are not touched. The files are not synced to the disk, which takes most of the time for
    thousands of them: a file that a power failure damages is written again by the next call that needs it.

    Args:
        jobs: the ids of the data sets, runs and tables to write; None: all. The specs of all figures are written, and
            the longest windows that these jobs read from each data set (`windows/<id>.json`).

    Returns:
        The number of files written.

    Raises:
        OutputError: the folder cannot be written, or a file in it cannot be read.
    """
    written = 0
    specs_by_folder: dict[str, Mapping[str, Spec]] = {
        "data": plan.data,
        "windows": plan.longest_windows(jobs),
        "runs": plan.runs,
        "measurements": plan.measurements,
        "figures": plan.figures,
    }
    for kind, specs in specs_by_folder.items():
        for name, spec in specs.items():
            if not (jobs is None or name in jobs or kind in ("figures", "windows")):
                continue
            path = Path(folder) / kind / f"{name}.json"
            # The order of fields is kept: it is that of the arms, and of the columns of a table.
            text = spec.model_dump_json(indent=2, by_alias=True) + "\n"
            with reading(OutputError, path):
                same = path.is_file() and path.read_bytes() == text.encode()
            if not same:
                write_text(path, text, sync=False)
                written += 1
    return written
