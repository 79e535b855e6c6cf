"""How long a plan takes on so many GPUs: its jobs laid out over time, in the order of a scheduler."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from heapq import heappop, heappush

from ssm.plan.plan import Plan
from ssm.plan.resources import Need


def jobs_for(plan: Plan, tables: Iterable[str]) -> set[str]:
    """The tables, and all that must be there before them: ids of tables, runs and data sets."""
    found: set[str] = set()
    wanted = list(tables)
    while wanted:
        job = wanted.pop()
        if job not in found:
            found.add(job)
            wanted += _before(plan, job)
    return found


def wall_seconds(plan: Plan, jobs: Iterable[str], needs: Mapping[str, Need], gpus: int) -> float:
    """Seconds from the first job to the last on `gpus` GPUs, by list scheduling: the longest way to the end goes first.

    A job that asks for more GPUs takes all of them. Jobs without a GPU wait for their inputs alone, unless no job asks
    for one: then `gpus` counts jobs side by side.
    """
    jobs = set(jobs)
    some = any(needs[job].gpus for job in jobs)
    slots = {job: min(needs[job].gpus if some else 1, gpus) for job in jobs}
    before = {job: set(_before(plan, job)) & jobs for job in jobs}
    after: dict[str, list[str]] = {job: [] for job in jobs}
    for job, inputs in before.items():
        for one in inputs:
            after[one].append(job)
    rest: dict[str, float] = {}  # seconds from a job's start to the end of the longest way behind it
    order = sorted(jobs, key=lambda job: len(jobs_for(plan, [job])), reverse=True)  # what needs a job stands before it
    for job in order:
        rest[job] = needs[job].seconds + max((rest[later] for later in after[job]), default=0.0)
    ready = [(-rest[job], job) for job in sorted(jobs) if not before[job]]
    ready.sort()
    running: list[tuple[float, str]] = []
    now, free = 0.0, gpus
    while ready or running:
        while ready and slots[ready[0][1]] <= free:
            _, job = heappop(ready)
            free -= slots[job]
            heappush(running, (now + needs[job].seconds, job))
        now, ended = heappop(running)
        free += slots[ended]
        for later in after[ended]:
            before[later].discard(ended)
            if not before[later]:
                heappush(ready, (-rest[later], later))
    return now


def _before(plan: Plan, job: str) -> list[str]:
    """What a job reads: the ids of its inputs."""
    if job not in plan.edges:
        return []  # a data set
    needs = plan.inputs_of(job)
    return [name for name in (needs.data, needs.run, needs.table) if name is not None]
