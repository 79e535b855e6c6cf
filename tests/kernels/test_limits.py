"""The machine's limits: what is timed is really done, and as much as is counted. Nothing here is timed."""

from __future__ import annotations

import platform
from collections.abc import Callable
from dataclasses import dataclass, field

import pytest
import torch
from ssm_kernels.native import instruction_sets, limits
from torch import Tensor

LANES = {"avx512": 16, "avx2": 8, "plain": 4}
CHAINS = {"avx512": 24, "avx2": 12, "plain": 24 if platform.machine() == "aarch64" else 12}
THREADS = (1, 2)


@pytest.mark.parametrize("instructions", instruction_sets())
@pytest.mark.parametrize("rounds", [1, 2, 5])
@pytest.mark.parametrize("threads", THREADS)
def test_multiply_adds_are_done(instructions: str, rounds: int, threads: int) -> None:
    """Every chain i goes from i to i / 2 + 1, round after round; the result is the sum of all lanes of all chains."""
    result = torch.ones(threads)
    done = limits.multiply_add_loop(instructions)(rounds, result.data_ptr(), threads)
    assert done == rounds * LANES[instructions] * CHAINS[instructions]
    expected = LANES[instructions] * sum(_after(chain, rounds) for chain in range(CHAINS[instructions]))
    assert result.tolist() == [expected] * threads


def _after(value: float, rounds: int) -> float:
    for _ in range(rounds):
        value = 0.5 * value + 1
    return value


@pytest.mark.parametrize("rounds", [1, 2])
@pytest.mark.parametrize("threads", THREADS)
@pytest.mark.parametrize("past", [False, True])
def test_streams_write_what_they_read(rounds: int, threads: int, past: bool) -> None:
    blocks = 3
    size = threads * blocks * limits.BLOCK
    a, b = torch.arange(float(size)), torch.arange(float(size)).flip(0) * 2
    for other, expected in ((None, a), (b, a + b)):
        to = torch.zeros(size + 1)
        _stream(a, other, to, torch.zeros(threads), blocks, rounds, past, threads)
        assert torch.equal(to[:-1], expected)
        assert to[-1] == 0


@pytest.mark.parametrize("rounds", [1, 2])
@pytest.mark.parametrize("threads", THREADS)
def test_streams_read_everything(rounds: int, threads: int) -> None:
    blocks = 3
    a = torch.arange(float(threads * blocks * limits.BLOCK)) % 7  # small whole numbers: their sums are exact
    sums = torch.zeros(threads)
    _stream(a, None, None, sums, blocks, rounds, False, threads)
    assert torch.equal(sums, rounds * a.view(threads, -1).sum(1))


def _stream(
    a: Tensor, b: Tensor | None, to: Tensor | None, result: Tensor, blocks: int, rounds: int, past: bool, threads: int
) -> None:
    addresses = (None if x is None else x.data_ptr() for x in (a, b, to, result))
    limits.stream_loop()(*addresses, blocks, rounds, past, threads)


@dataclass
class Clock:
    """Every timed run takes a second."""

    runs: int = 0
    asked: list[float] = field(default_factory=list)

    def best_seconds(self, run: Callable[[], object], seconds: float) -> float:
        run()
        self.runs += 1
        self.asked.append(seconds)
        return 1.0


@pytest.mark.parametrize("threads", THREADS)
def test_rates_are_what_was_done_by_second(threads: int, monkeypatch: pytest.MonkeyPatch) -> None:
    clock = Clock()
    monkeypatch.setattr(limits, "best_seconds", clock.best_seconds)
    monkeypatch.setattr(limits, "ROUNDS", 10)
    monkeypatch.setattr(limits, "MOVED", 2**20)
    widest = max(LANES[name] * CHAINS[name] for name in instruction_sets())
    assert limits.multiply_adds(threads, 3.0) == threads * 10 * widest
    assert clock.asked == [3.0] * len(instruction_sets())
    page = limits.BLOCK * limits.FLOAT
    for touched in (page, 2**18, 2**21):
        moved = [limits._stream(touched, *kind, threads, 0.5) for kind in limits.STREAMS]
        # Whole pages of up to three arrays and of every thread, forward and backward: somewhat more than asked for.
        assert min(moved) >= max(2**20, 2 * touched)
        assert max(moved) <= 2 * (max(2**20, touched) + 6 * page * threads)
        assert limits.stream(touched, threads, 0.5) == max(moved)
    assert set(clock.asked[len(instruction_sets()) :]) == {0.5}


def test_the_shortest_of_all_runs_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    # Before and after the clock is read for the end of the measurement; then a start and an end of every run.
    times = iter([0.0, 0.0, 0.0, 0.4, 0.4, 0.4, 0.7, 0.7, 0.7, 1.2, 1.3])
    monkeypatch.setattr("ssm_kernels.native.limits.time.perf_counter", lambda: next(times))
    calls: list[None] = []
    assert limits.best_seconds(lambda: calls.append(None), 1.0) == pytest.approx(0.3)
    assert len(calls) == 4  # the first one warms up
