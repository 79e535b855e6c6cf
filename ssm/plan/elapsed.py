"""The time that finished jobs took, for comparison with the estimate."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from ssm.base.errors import TableError
from ssm.base.records import RUN_RECORD, read_run_record
from ssm.base.tables import read_provenance
from ssm.plan.plan import Plan
from ssm.plan.resources import START_SECONDS, Need


def elapsed(plan: Plan, expected: Mapping[str, Need], results: Path, gpu: bool) -> dict[str, Need]:
    """Run, table or data id -> the expected need with the seconds that the job took, including its start.

    Unfinished jobs are left out. Token stores do not record their time, so the expected time is used.

    Args:
        results: a scale's folder, such as results/smoke.

    Raises:
        TableError: a table or the record of a run is broken.
    """
    found = {data: expected[data] for data in plan.data}
    for job in (*plan.runs, *plan.measurements):
        seconds = _seconds(results, job, job in plan.runs)
        if seconds is not None:
            found[job] = replace(expected[job], seconds=START_SECONDS[gpu] + seconds)
    return found


def _seconds(results: Path, job: str, run: bool) -> float | None:
    path = results / "runs" / job / RUN_RECORD if run else results / "tables" / f"{job}.parquet"
    if not path.is_file():
        return None
    record = read_run_record(path, TableError, f"{path}: missing") if run else read_provenance(path)
    seconds = record.get("seconds")
    return None if seconds is None else float(seconds)
