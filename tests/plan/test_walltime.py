"""Jobs laid out over time: small graphs whose end can be seen."""

from __future__ import annotations

from ssm.plan import Inputs, Plan
from ssm.plan.resources import Need
from ssm.plan.walltime import jobs_for, wall_seconds


def graph(**jobs: tuple[float, int, str]) -> tuple[Plan, dict[str, Need]]:
    """Jobs as seconds, GPUs and the job that they wait for ("": none)."""
    plan = Plan(scale="smoke", edges={name: Inputs(run=before or None) for name, (_, _, before) in jobs.items()})
    return plan, {name: Need(gpus, 1, 1, seconds, 1) for name, (seconds, gpus, _) in jobs.items()}


def test_jobs_side_by_side_and_one_after_another() -> None:
    plan, needs = graph(a=(4, 1, ""), b=(3, 1, ""), c=(2, 1, "a"))
    assert [wall_seconds(plan, needs, needs, gpus) for gpus in (1, 2, 9)] == [9, 6, 6]
    assert jobs_for(plan, ["c"]) == {"a", "c"}
    assert wall_seconds(plan, ["c"], needs, 1) == 2, "what is not asked for is there"


def test_the_longest_way_goes_first() -> None:
    """On two GPUs: the chain of 1 + 6 beside 3 + 4 alone; begun with the longest single jobs it would take 10."""
    plan, needs = graph(head=(1, 1, ""), tail=(6, 1, "head"), x=(3, 1, ""), y=(4, 1, ""))
    assert wall_seconds(plan, needs, needs, 2) == 7


def test_the_longest_way_is_that_of_most_seconds_and_not_of_most_jobs() -> None:
    plan, needs = graph(a=(1, 1, ""), behind_a=(1, 1, "a"), b=(1, 1, ""), behind_b=(1, 1, "b"), long=(9, 1, ""))
    assert wall_seconds(plan, needs, needs, 2) == 9


def test_a_job_on_several_gpus_waits_until_they_are_free() -> None:
    plan, needs = graph(wide=(5, 4, ""), a=(2, 1, ""), b=(2, 1, ""))
    assert wall_seconds(plan, needs, needs, 4) == 7
    assert wall_seconds(plan, needs, needs, 6) == 5
    assert wall_seconds(plan, needs, needs, 2) == 7, "with fewer than it asks for it takes all"


def test_jobs_without_a_gpu_take_none() -> None:
    plan, needs = graph(train=(5, 1, ""), **{f"table{i}": (2, 0, "train") for i in range(9)})
    assert wall_seconds(plan, needs, needs, 1) == 7


def test_without_gpus_the_number_is_that_of_jobs_side_by_side() -> None:
    plan, needs = graph(a=(4, 0, ""), b=(3, 0, ""), c=(2, 0, "a"))
    assert [wall_seconds(plan, needs, needs, side) for side in (1, 2)] == [9, 6]


def test_nothing_takes_no_time() -> None:
    assert wall_seconds(Plan(scale="smoke"), [], {}, 1) == 0
