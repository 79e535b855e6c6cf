"""The loops that measure the machine's limits do the work that is counted. Nothing is timed here."""

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
    """Each round maps x to x / 2 + 1 in every chain, and chain i starts from i. The result sums lanes and chains."""
    result = torch.ones(threads)
    done = limits.multiply_add_loop(instructions)(rounds, result.data_ptr(), threads)
    assert done == rounds * LANES[instructions] * CHAINS[instructions]
    chains = torch.arange(float(CHAINS[instructions]))
    for _ in range(rounds):
        chains = 0.5 * chains + 1
    assert result.tolist() == [float(LANES[instructions] * chains.sum())] * threads


@pytest.mark.parametrize("rounds", [1, 2])
@pytest.mark.parametrize("threads", THREADS)
@pytest.mark.parametrize("past", [False, True])
def test_streams_write_the_sum_of_their_inputs(rounds: int, threads: int, past: bool) -> None:
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
    a = torch.arange(float(threads * blocks * limits.BLOCK)) % 7  # sums of small integers are exact
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
    """A clock for which every timed run takes a second."""

    runs: int = 0
    asked: list[float] = field(default_factory=list)

    def best_seconds(self, run: Callable[[], object], seconds: float) -> float:
        run()
        self.runs += 1
        self.asked.append(seconds)
        return 1.0


@pytest.mark.parametrize("threads", THREADS)
def test_rates_are_work_per_second(threads: int, monkeypatch: pytest.MonkeyPatch) -> None:
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
        # The loops move whole pages of up to three arrays per thread, forward and backward: slightly more than asked.
        assert min(moved) >= max(2**20, 2 * touched)
        assert max(moved) <= 2 * (max(2**20, touched) + 6 * page * threads)
        assert limits.stream(touched, threads, 0.5) == max(moved)
    assert set(clock.asked[len(instruction_sets()) :]) == {0.5}


def test_best_seconds_is_the_shortest_run(monkeypatch: pytest.MonkeyPatch) -> None:
    # The first readings and the last ones bound the measurement; between them, every run has a start and an end.
    times = iter([0.0, 0.0, 0.0, 0.4, 0.4, 0.4, 0.7, 0.7, 0.7, 1.2, 1.3])
    monkeypatch.setattr("ssm_kernels.native.limits.time.perf_counter", lambda: next(times))
    calls: list[None] = []
    assert limits.best_seconds(lambda: calls.append(None), 1.0) == pytest.approx(0.3)
    assert len(calls) == 4  # the first call warms up
