"""The wall time of small graphs of jobs."""

from __future__ import annotations

from ssm.plan import Inputs, Plan
from ssm.plan.resources import Need
from ssm.plan.walltime import jobs_for, wall_seconds


def graph(**jobs: tuple[float, int, str]) -> tuple[Plan, dict[str, Need]]:
    """Jobs as (seconds, GPUs, job to wait for or "")."""
    plan = Plan(scale="smoke", edges={name: Inputs(run=before or None) for name, (_, _, before) in jobs.items()})
    return plan, {name: Need(gpus, 1, 1, seconds, 1) for name, (seconds, gpus, _) in jobs.items()}


def test_parallel_and_sequential_jobs() -> None:
    plan, needs = graph(a=(4, 1, ""), b=(3, 1, ""), c=(2, 1, "a"))
    assert [wall_seconds(plan, needs, needs, gpus) for gpus in (1, 2, 9)] == [9, 6, 6]
    assert jobs_for(plan, ["c"]) == {"a", "c"}
    assert wall_seconds(plan, ["c"], needs, 1) == 2, "other jobs are finished"


def test_the_longest_path_goes_first() -> None:
    """On two GPUs: 1 + 6 next to 3 + 4. If the longest jobs were first, it would take 10."""
    plan, needs = graph(head=(1, 1, ""), tail=(6, 1, "head"), x=(3, 1, ""), y=(4, 1, ""))
    assert wall_seconds(plan, needs, needs, 2) == 7


def test_the_longest_path_has_the_most_seconds_not_the_most_jobs() -> None:
    plan, needs = graph(a=(1, 1, ""), behind_a=(1, 1, "a"), b=(1, 1, ""), behind_b=(1, 1, "b"), long=(9, 1, ""))
    assert wall_seconds(plan, needs, needs, 2) == 9


def test_a_job_on_several_gpus_waits_until_they_are_free() -> None:
    plan, needs = graph(wide=(5, 4, ""), a=(2, 1, ""), b=(2, 1, ""))
    assert wall_seconds(plan, needs, needs, 4) == 7
    assert wall_seconds(plan, needs, needs, 6) == 5
    assert wall_seconds(plan, needs, needs, 2) == 7, "it takes all GPUs if there are too few"


def test_jobs_without_a_gpu_take_none() -> None:
    plan, needs = graph(train=(5, 1, ""), **{f"table{i}": (2, 0, "train") for i in range(9)})
    assert wall_seconds(plan, needs, needs, 1) == 7


def test_without_gpus_the_number_counts_parallel_jobs() -> None:
    plan, needs = graph(a=(4, 0, ""), b=(3, 0, ""), c=(2, 0, "a"))
    assert [wall_seconds(plan, needs, needs, side) for side in (1, 2)] == [9, 6]


def test_an_empty_plan_takes_no_time() -> None:
    assert wall_seconds(Plan(scale="smoke"), [], {}, 1) == 0
