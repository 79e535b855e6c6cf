"""The machine's limits: what is timed is really done, and every limit is a number."""

from __future__ import annotations

import math
from dataclasses import asdict

import pytest
import torch
from ssm_kernels.native import limits
from ssm_kernels.native.call import call


@pytest.mark.parametrize("threads", [1, 2])
def test_every_limit_is_measured(threads: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "SECONDS", 0.0)  # one run each
    monkeypatch.setattr(limits, "FAR", 2**22)
    measured = asdict(limits.machine_limits(threads))
    assert measured.pop("threads") == threads
    assert all(0 < value < math.inf for value in measured.values())
    assert 0 < limits.copy_rate(2**20, threads) < math.inf
    assert torch.get_num_threads() == 1  # as it was


@pytest.mark.parametrize("rounds", [1, 2])
def test_multiply_adds_are_done(rounds: int) -> None:
    """Every chain i goes from i to i / 2 + 1, round after round; the result is the sum of all lanes of all chains."""
    result = torch.ones(1)
    call(limits.SOURCE, "limits_fma", torch.float32, rounds, result)
    once = float(result) / sum(_after(chain, rounds) for chain in range(limits.FMA_CHAINS))
    assert once in (4, 8, 16)  # lanes of a vector


def _after(value: float, rounds: int) -> float:
    for _ in range(rounds):
        value = 0.5 * value + 1
    return value


def test_copies_are_done(monkeypatch: pytest.MonkeyPatch) -> None:
    source = torch.arange(1000, dtype=torch.float32)
    for threads in (1, 2):
        monkeypatch.setattr(torch, "get_num_threads", lambda threads=threads: threads)
        target = torch.zeros(1000)
        call(limits.SOURCE, "limits_copy", torch.float32, source, target, 1000, 1)
        assert torch.equal(target, source)
