"""The wall time of small graphs of jobs."""

from __future__ import annotations

import pytest

from ssm.plan import Inputs, Plan
from ssm.plan.resources import Need
from ssm.plan.walltime import jobs_for, wall_seconds

Jobs = dict[str, tuple[float, int, str]]  # name -> (seconds, GPUs, job to wait for or "")


def graph(jobs: Jobs) -> tuple[Plan, dict[str, Need]]:
    plan = Plan(scale="smoke", inputs={name: Inputs(run=before or None) for name, (_, _, before) in jobs.items()})
    return plan, {name: Need(gpus, 1, 1, seconds, 1) for name, (seconds, gpus, _) in jobs.items()}


@pytest.mark.parametrize(
    ("jobs", "expected"),  # GPUs -> wall seconds
    [
        pytest.param({"a": (4, 1, ""), "b": (3, 1, ""), "c": (2, 1, "a")}, {1: 9, 2: 6, 9: 6}, id="parallel"),
        # 1 + 6 next to 3 + 4. If the longest jobs were first, it would take 10.
        pytest.param(
            {"head": (1, 1, ""), "tail": (6, 1, "head"), "x": (3, 1, ""), "y": (4, 1, "")},
            {2: 7},
            id="the longest path first",
        ),
        pytest.param(
            {"a": (1, 1, ""), "after_a": (1, 1, "a"), "b": (1, 1, ""), "after_b": (1, 1, "b"), "long": (9, 1, "")},
            {2: 9},
            id="the path with the most seconds, not the most jobs",
        ),
        # A job on several GPUs waits until they are free. It takes all GPUs if there are too few.
        pytest.param({"wide": (5, 4, ""), "a": (2, 1, ""), "b": (2, 1, "")}, {4: 7, 6: 5, 2: 7}, id="several GPUs"),
        pytest.param({"train": (5, 1, "")} | {f"table{i}": (2, 0, "train") for i in range(9)}, {1: 7}, id="no GPU"),
        # If no job uses a GPU, the number counts parallel jobs.
        pytest.param({"a": (4, 0, ""), "b": (3, 0, ""), "c": (2, 0, "a")}, {1: 9, 2: 6}, id="only CPUs"),
        pytest.param({}, {1: 0}, id="empty"),
    ],
)
def test_the_wall_time_of_a_graph(jobs: Jobs, expected: dict[int, float]) -> None:
    plan, needs = graph(jobs)
    assert {gpus: wall_seconds(plan, needs, needs, gpus) for gpus in expected} == expected


def test_a_part_of_a_graph() -> None:
    plan, needs = graph({"a": (4, 1, ""), "b": (3, 1, ""), "c": (2, 1, "a")})
    assert jobs_for(plan, ["c"]) == {"a", "c"}
    assert wall_seconds(plan, ["c"], needs, 1) == 2, "other jobs are finished"
