"""The wall time of a plan on a number of GPUs, by simulating a scheduler."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from graphlib import TopologicalSorter
from heapq import heappop, heappush

from ssm.plan.plan import Plan
from ssm.plan.resources import Need


def jobs_for(plan: Plan, tables: Iterable[str]) -> set[str]:
    """The ids of some tables and of everything they need: other tables, runs and data sets."""
    jobs: set[str] = set()
    wanted = list(tables)
    while wanted:
        job = wanted.pop()
        if job not in jobs:
            jobs.add(job)
            wanted += _before(plan, job)
    return jobs


def wall_seconds(plan: Plan, jobs: Iterable[str], needs: Mapping[str, Need], gpus: int) -> float:
    """Seconds until all jobs are finished on `gpus` GPUs, by list scheduling.

    Of the jobs that are ready, the job with the longest remaining path starts first. A job that needs more than `gpus`
    GPUs takes all of them. A job without a GPU only waits for its inputs. If no job needs a GPU, `gpus` is the number
    of jobs that run at the same time.
    """
    jobs = set(jobs)
    on_gpus = any(needs[job].gpus for job in jobs)
    slots = {job: min(needs[job].gpus if on_gpus else 1, gpus) for job in jobs}
    before = {job: set(_before(plan, job)) & jobs for job in jobs}
    after: dict[str, list[str]] = {job: [] for job in jobs}
    for job, inputs in before.items():
        for earlier in inputs:
            after[earlier].append(job)
    path: dict[str, float] = {}  # job -> seconds of the longest chain of jobs that starts with it
    for job in reversed(list(TopologicalSorter(before).static_order())):  # jobs come before their inputs
        path[job] = needs[job].seconds + max((path[later] for later in after[job]), default=0.0)
    ready = [(-path[job], job) for job in sorted(jobs) if not before[job]]
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
                heappush(ready, (-path[later], later))
    return now


def _before(plan: Plan, job: str) -> list[str]:
    """The ids of a job's inputs."""
    if job not in plan.inputs:
        return []  # a data set
    needs = plan.inputs[job]
    return [name for name in (needs.data, needs.run, needs.table) if name is not None]
