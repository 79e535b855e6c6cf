"""Time several implementations fairly: in turn, in one process, with the same inputs."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from statistics import median

import torch

from ssm_kernels.timing import seconds_of


@dataclass
class Contestant:
    """One implementation, and the milliseconds of each of its timed calls."""

    name: str
    run: Callable[[], object]
    milliseconds: list[float] = field(default_factory=list)

    @property
    def median(self) -> float:
        return median(self.milliseconds)


def race(
    contestants: list[Contestant], repeats: int, seconds: float, device: torch.device, twice: bool = False
) -> None:
    """Call every contestant up to `repeats` times and store the milliseconds of each call.

    In each round every contestant runs once, and each round starts with another contestant. So a machine that slows
    down slows all of them. The first call warms up and does not count. A contestant stops early when all its calls
    together would take more than `seconds`. If its first call takes that long, this call is its only result.

    Args:
        twice: make each call twice, and time the second one. Its data are then in the caches, if they fit.
    """
    if not contestants:
        return
    allowed = {}
    for contestant in contestants:
        first_call = 1000 * seconds_of(contestant.run, device)
        allowed[contestant.name] = int(1000 * seconds / first_call)
        if not allowed[contestant.name]:
            contestant.milliseconds.append(first_call)
    for turn in range(repeats):
        first = turn % len(contestants)
        for contestant in contestants[first:] + contestants[:first]:
            if turn < allowed[contestant.name]:
                if twice:
                    contestant.run()
                contestant.milliseconds.append(1000 * seconds_of(contestant.run, device))


@contextmanager
def flushed_denormals(flush: bool = True) -> Iterator[None]:
    """Treat denormal numbers as zero in this thread. Decays make many of them, and CPUs are slow on them."""
    torch.set_flush_denormal(flush)
    try:
        yield
    finally:
        torch.set_flush_denormal(False)
