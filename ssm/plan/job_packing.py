"""Job packing: which tables one cluster job makes.

Measurements are short, and those of one run wait for the same weights. One job makes several of their tables, one after
another. It requests the sum of their times. A batch system refuses a job that requests more than its time limit. The
tables of a run are therefore split into several jobs, so that even the last attempt of a job stays below the limit.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass

from ssm.plan.plan import Plan
from ssm.plan.resources import ATTEMPTS, Need
from ssm.specs.config import Cluster


@dataclass(frozen=True)
class JobShare:
    """The job that makes a table.

    Attributes:
        job: the name of the job. All its tables have the same.
        share: the share of the time limit that the table can request. The shares of a job add up to 1.
    """

    job: str
    share: float


def job_names(plan: Plan) -> set[str]:
    """All names that jobs can have."""
    counts = Counter(plan.inputs[table].run for table in plan.measurements)
    return {_name(run, number) for run, count in counts.items() if run for number in range(count)}


def pack_jobs(plan: Plan, found: Mapping[str, Need], cluster: Cluster) -> dict[str, JobShare]:
    """Table -> its job and share, for every table that is measured on a run.

    The tables of a job follow each other in the plan, where each table comes after its input table. So two jobs never
    wait for each other.
    """
    lines: dict[str, list[list[str]]] = {}  # run -> jobs -> tables
    minutes = {table: found[table].minutes_to_request(cluster) for table in plan.measurements}
    limit = 60 * cluster.max_hours / ATTEMPTS
    for table in plan.measurements:
        run = plan.inputs[table].run
        if run is None:
            continue
        jobs = lines.setdefault(run, [[]])
        if jobs[-1] and sum(minutes[other] for other in (*jobs[-1], table)) > limit:
            jobs.append([])
        jobs[-1].append(table)
    placed: dict[str, JobShare] = {}
    for run, jobs in lines.items():
        for number, tables in enumerate(jobs):
            total = sum(minutes[table] for table in tables)
            placed |= {table: JobShare(_name(run, number), minutes[table] / total) for table in tables}
    return placed


def _name(run: str, number: int) -> str:
    return f"measure_{run}_{number + 1}"
