"""A fair race: everybody in turn, in one process, with the same inputs; medians of what was timed."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from statistics import median

import torch

from ssm.models.device import seconds_of


@dataclass
class Contestant:
    """One implementation of the thing that is timed, and the milliseconds of each of its calls."""

    name: str
    run: Callable[[], object]
    milliseconds: list[float] = field(default_factory=list)

    @property
    def median(self) -> float:
        return median(self.milliseconds)


def race(contestants: list[Contestant], repeats: int, seconds: float, device: torch.device) -> None:
    """Call every contestant up to `repeats` times and note each call's milliseconds.

    Round after round all of them run once, each round begun by another one, so that a machine that slows down slows
    everybody. A first call warms up and does not count; who needs more than `seconds` for all repeats drops out early,
    and whose first call takes that long is judged by it alone.
    """
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
                contestant.milliseconds.append(1000 * seconds_of(contestant.run, device))


@contextmanager
def flushed_denormals(flush: bool = True) -> Iterator[None]:
    """Denormal numbers count as zero in this thread: decays make many of them, and a CPU is slow on each."""
    torch.set_flush_denormal(flush)
    try:
        yield
    finally:
        torch.set_flush_denormal(False)
