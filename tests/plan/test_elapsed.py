"""The time of finished figures is shown next to the estimate."""

from __future__ import annotations

from pathlib import Path

import polars as pl
import pytest
from plan.mini import write_config

from ssm.base.errors import TableError
from ssm.base.files import write_json
from ssm.base.tables import METRICS, write_table
from ssm.plan import Plan, load_config, make_plan
from ssm.plan.elapsed import elapsed
from ssm.plan.resources import START_SECONDS, needs
from ssm.plan.summary import CALL_SECONDS, DRAW_SECONDS, summary
from ssm.specs.config import WorkflowConfig


@pytest.fixture
def planned(tmp_path: Path) -> tuple[Plan, WorkflowConfig]:
    library = load_config(write_config(tmp_path / "config"), "smoke")
    return make_plan(library), library.workflow


def finish(results: Path, plan: Plan, target: str, run: float, table: float) -> None:
    """Write the records of all runs and of a figure's tables, with the seconds of each run and table."""
    for name in plan.runs:
        write_json(results / "runs" / name / "run.json", {"status": "finished", "seconds": run})
    for name in plan.tables_of(target):
        row = {column: [1.0 if kind == pl.Float64() else 1] for column, kind in METRICS.columns.items()}
        frame = pl.DataFrame(row, schema=dict(METRICS.columns))
        write_table(frame, METRICS, results / "tables" / f"{name}.parquet", {"seconds": table})


def test_finished_figures_show_their_time(tmp_path: Path, planned: tuple[Plan, WorkflowConfig]) -> None:
    plan, workflow = planned
    finish(tmp_path, plan, "lg_fig5", run=200.0, table=30.0)
    rows = [line.split() for line in summary(plan, workflow, 1, results=tmp_path, here=False).splitlines()]
    (head,) = (row for row in rows if row[:1] == ["figure"])
    assert head[-1] == "took"
    expected = needs(plan, workflow, gpu=False)
    jobs = len(plan.runs) * 200 + len(plan.tables_of("lg_fig5")) * 30
    starts = (len(plan.runs) + len(plan.tables_of("lg_fig5"))) * START_SECONDS[False]
    store = sum(expected[data].seconds for data in plan.data)
    minutes = (CALL_SECONDS + DRAW_SECONDS + jobs + starts + store) / 60
    (row,) = (row for row in rows if row[:1] == ["lg_fig5"])
    assert row[-2:] == [str(round(minutes)), "min"]
    (other,) = (row for row in rows if row[:1] == ["lg_fig4"])
    assert len(other) == len(row) - 2, "it is not finished"
    made = [f"{len(plan.runs)} of {len(plan.runs)} runs"]
    made += [f"{len(plan.tables_of('lg_fig5'))} of {len(plan.measurements)} tables"]
    assert f"Made already in {tmp_path}: {' and '.join(made)}. The table counts them, too.".split() in rows
    (without,) = (line.split() for line in summary(plan, workflow, 1, here=False).splitlines() if "lg_fig4" in line)
    assert other == without


def test_a_broken_record_is_named(tmp_path: Path, planned: tuple[Plan, WorkflowConfig]) -> None:
    plan, workflow = planned
    expected = needs(plan, workflow, gpu=False)
    finish(tmp_path, plan, "lg_fig5", run=200.0, table=30.0)
    assert len(elapsed(plan, expected, tmp_path, gpu=False)) > len(plan.data)
    name = plan.tables_of("lg_fig5")[0]
    (tmp_path / "tables" / f"{name}.parquet").write_text("{")
    with pytest.raises(TableError, match=name):
        elapsed(plan, expected, tmp_path, gpu=False)


def test_an_empty_folder_is_no_error(tmp_path: Path, planned: tuple[Plan, WorkflowConfig]) -> None:
    plan, workflow = planned
    assert "Made already" in summary(plan, workflow, 1, results=tmp_path, here=False)
