"""Review all figures and scales against the file of preregistrations, and add what is missing."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from ssm.base.errors import ConfigError
from ssm.base.files import write_text
from ssm.claims.preregistration import Preregistration, Preregistrations, read_preregistrations
from ssm.claims.statements import ALL
from ssm.figures.figure import FigureTask
from ssm.plan.library import load_config, require_config, targets_of
from ssm.plan.plan import make_plan
from ssm.plan.review import Findings, contents, review, seeds_of


def preregister_figures(
    folder: str | Path, targets: Sequence[str], scales: Sequence[str], date: str
) -> tuple[Preregistrations, tuple[str, ...], Findings]:
    """Review figures against their preregistrations, and add what is missing.

    Args:
        folder: the config folder.
        targets: figures, papers such as `lg`, or `all`. Of several scales, those that lack a figure are skipped.
        date: the date of new entries, UTC.

    Returns:
        The completed preregistrations, the names of new entries, and the findings. A refused figure is not added.

    Raises:
        ConfigError: the config folder does not make a plan, or the only scale lacks a figure.
    """
    require_config(Path(folder))
    before = preregistrations = read_preregistrations(Path(folder))
    findings, added = Findings(), []
    for scale in scales:
        wanted = targets if len(scales) == 1 or ALL in targets else targets_of(Path(folder), targets, scale)
        if not wanted:
            continue
        try:
            library = load_config(folder, scale, wanted, {"dry_run": None})
            plan = make_plan(library)
        except ConfigError as error:
            raise ConfigError(f"{error}; planned at the scale '{scale}'") from None
        for target, task in plan.figures.items():
            found = contents(task, plan.runs, plan.measurements)
            of_figure = review(task, found, preregistrations, before)
            if of_figure.missing and not of_figure.refused:
                entry = Preregistration(date=date, seeds=seeds_of(task), claims=found)
                scales_of_figure = preregistrations.figures.get(target, {})
                entries = {scale: (*preregistrations.of(target, scale), entry)}
                figures = preregistrations.figures | {target: scales_of_figure | entries}
                preregistrations = Preregistrations(figures=figures)
                added.append(f"{target} ({scale})")
                of_figure += _measured(task, Path(library.workflow.results) / scale / "tables")
            findings += of_figure
    return preregistrations, tuple(added), findings


def _measured(task: FigureTask, tables: Path) -> Findings:
    """A finding if some of the figure's tables are there already, so that its verdicts may have been seen."""
    names = task.table_ids
    found = sum((tables / f"{name}.parquet").is_file() for name in names)
    if not found:
        return Findings()
    line = (
        f"{task.target} ({task.scale}): {tables} has {found} of its {len(names)} tables already; a claim that "
        "was measured before its registration counts as not registered; give the figure seeds that it never had"
    )
    return Findings(measured=[line])


def write_preregistrations(preregistrations: Preregistrations, path: Path) -> None:
    """Write the file with a line for each claim, so that a diff shows which claim changed.

    Raises:
        OutputError: it cannot be written.
    """
    write_text(path, _layout(preregistrations.model_dump(mode="json", exclude_defaults=True), ()) + "\n")


def _layout(value: Any, path: tuple[str, ...]) -> str:
    """JSON with a line for each figure, scale, registration and claim."""
    depth = len(path)
    deep = isinstance(value, dict | list) and value and depth < 6 and not (depth == 5 and path[4] != "claims")
    if not deep:
        return json.dumps(value, ensure_ascii=False)
    indent = "  " * (depth + 1)
    if isinstance(value, list):
        inner = [_layout(item, (*path, "")) for item in value]
    else:
        inner = [f"{json.dumps(key)}: {_layout(item, (*path, key))}" for key, item in value.items()]
    left, right = "[]" if isinstance(value, list) else "{}"
    return f"{left}\n{indent}" + f",\n{indent}".join(inner) + f"\n{'  ' * depth}{right}"
