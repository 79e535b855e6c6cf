"""Job packing: which tables one job of a cluster makes. Those of one run, as far as a job's time limit goes.

Tables are short and wait for the same weights, so that a job makes one after another. It asks for the sum of what they
ask for, and a batch system takes no job that asks for more than its limit: so a run's tables are as many jobs as it
takes for the sums to stay below it, at the last attempt too.
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
    """The job that makes a table, and its share of it.

    Attributes:
        job: its name, the same for all tables of the job.
        share: of the time limit, what the table may ask for; all shares of a job make 1.
    """

    job: str
    share: float


def job_names(plan: Plan) -> set[str]:
    """All names that jobs may have."""
    counts = Counter(plan.inputs_of(table).run for table in plan.measurements)
    return {_name(run, number) for run, count in counts.items() if run for number in range(count)}


def pack_jobs(plan: Plan, found: Mapping[str, Need], cluster: Cluster) -> dict[str, JobShare]:
    """Table -> its job and share, for every table that is measured on a run.

    A job's tables stand one behind another in the plan, where a table comes behind the one that it is made from. So a
    job waits for none that waits for it.
    """
    lines: dict[str, list[list[str]]] = {}  # run -> jobs -> tables
    minutes = {table: found[table].minutes_to_ask_for(cluster) for table in plan.measurements}
    limit = 60 * cluster.max_hours / ATTEMPTS
    for table in plan.measurements:
        run = plan.inputs_of(table).run
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
