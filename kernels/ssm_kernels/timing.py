"""Time of a call on any device."""

from __future__ import annotations

import time
from collections.abc import Callable

import torch


def seconds_of(call: Callable[[], object], device: torch.device) -> float:
    """Seconds of one call, including its own work on a GPU, but not work that was started before."""
    _wait(device)
    start = time.perf_counter()
    call()
    _wait(device)
    return time.perf_counter() - start


def _wait(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize(device)
