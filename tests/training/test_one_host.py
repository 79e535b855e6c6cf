"""What processes of one host show each other, and what they do where they are not on one host."""

from __future__ import annotations

import os
import resource
import tempfile
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest
import torch
from training.processes import run_team

from ssm.base.exit_codes import LOST
from ssm.training import one_host
from ssm.training.distributed import Team

ROUNDS = 300

exhaustive = partial(pytest.param, marks=pytest.mark.exhaustive)


def values_of(rank: int, turn: int) -> torch.Tensor:
    return torch.full((100, 7), 1000.0 * turn + rank)


def late_readers(team: Team) -> None:
    """In every round another process reads late, while the others may be at the next exchange already."""
    assert team.shared is not None
    for turn in range(ROUNDS):
        seen = team.shared.everybodys(values_of(team.rank, turn))
        if turn % team.size == team.rank:
            torch.ones(10**6).sum()
        assert torch.equal(seen, torch.stack([values_of(rank, turn) for rank in range(team.size)]))


@pytest.mark.parametrize("size", [exhaustive(2), 3, exhaustive(4)])
def test_what_a_process_shows_stays_until_all_have_read_it(size: int) -> None:
    assert run_team(size, late_readers) == [0] * size


SHAPES = [(), (0,), (3,), (4, 5), (2, 0, 4), (2, 3, 4), (one_host.CAPACITY // 4,), (one_host.CAPACITY // 4 + 1,)]


def other_host(team: Team, rank: int, how: str, parent: str) -> None:
    """The process of `rank` lies where the others' folder is not, or has no room."""
    one_host.IN_MEMORY = parent
    one_host.MEETING = 0.5
    if team.rank == rank:
        if how == "elsewhere":
            one_host.Path = lambda name: Path(name) / "not"  # type: ignore[misc, assignment]
        elif how == "no connection":
            one_host.SharedMemory._meet = lambda *arguments: None  # type: ignore[method-assign]
        else:
            resource.setrlimit(resource.RLIMIT_FSIZE, (one_host.CAPACITY, one_host.CAPACITY))
    shared = one_host.SharedMemory.of_the_team(team.rank, team.size)
    assert shared is None
    team.wait()
    assert list(Path(parent).iterdir()) == []
    sums(Team(team.rank, team.size, shared))


def sums(team: Team) -> None:
    """Of every shape and dtype that a place may hold, and of one that is larger: the same bits in each process."""
    for dtype in (torch.float32, torch.float64, torch.int32, torch.int64):
        for shape in SHAPES:
            every = [torch.arange(rank, rank + torch.Size(shape).numel()) % 7 for rank in range(team.size)]
            stack = torch.stack([one.view(shape).to(dtype) for one in every])
            mine = stack[team.rank].clone()
            assert torch.equal(team.total(mine), stack.sum(0, dtype=dtype))
            assert torch.equal(mine, stack[team.rank])  # a total leaves what it is given
            assert torch.equal(team.stacked(mine), stack)
            if mine.dim() == 2:
                assert torch.equal(team.total(mine.T), stack.sum(0, dtype=dtype).T)
    kept = team.stacked(torch.tensor([team.rank]))
    for _ in range(3):
        team.any_of(True)
    assert kept.flatten().tolist() == list(range(team.size))  # no view of what others write over


@pytest.mark.parametrize("size", [exhaustive(2), 3])
def test_sums_on_one_host(size: int) -> None:
    assert run_team(size, sums) == [0] * size


@pytest.fixture
def parent() -> Iterator[str]:
    """A folder whose name is short enough for a socket's."""
    with tempfile.TemporaryDirectory() as name:
        yield name


@pytest.mark.parametrize("how", ["elsewhere", "no connection", "no room"])
def test_processes_that_are_not_on_one_host_add_up_by_gloo(how: str, parent: str) -> None:
    assert run_team(2, other_host, 0 if how == "no room" else 1, how, parent) == [0, 0]


def die(team: Team, parent: str) -> None:
    one_host.IN_MEMORY = parent
    shared = one_host.SharedMemory.of_the_team(team.rank, team.size)
    assert shared is not None
    team.wait()
    assert list(Path(parent).iterdir()) == []
    if team.rank:
        os._exit(9)
    shared.everybodys(torch.zeros(1))


def test_the_memory_has_no_name_and_who_waits_for_the_dead_is_told(parent: str) -> None:
    assert run_team(2, die, parent) == [LOST, 9]
