"""Time of a call on any device."""

from __future__ import annotations

import time
from collections.abc import Callable

import torch


def seconds_of(call: Callable[[], object], device: torch.device) -> float:
    """Seconds of one call, including its own work on a GPU, but not work that was started before."""
    wait(device)
    start = time.perf_counter()
    call()
    wait(device)
    return time.perf_counter() - start


def wait(device: torch.device) -> None:
    """Return when the device has finished its work.

    Raises:
        RuntimeError: work on a GPU failed.
    """
    if device.type == "cuda":
        torch.cuda.synchronize(device)
