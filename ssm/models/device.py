"""Which device a job computes on, and how it behaves there."""

from __future__ import annotations

import ctypes
import os
import time
from collections.abc import Callable

import torch
from ssm_kernels.native import InstructionsError, instructions

from ssm.base.errors import UserError
from ssm.specs.config import MOST_THREADS

# glibc's mallopt: blocks below the one size are kept in the process when they are freed, up to the other in all.
# Otherwise every training step would ask the system for its large blocks again: 6% of its time at a context of 128.
MMAP_THRESHOLD, TRIM_THRESHOLD = (-3, 32 * 2**20), (-1, 512 * 2**20)


def prepare_device(name: str, threads: int | None = None) -> torch.device:
    """The device called `name` ("auto": a GPU where there is one), with threads and denormals set for this process.

    Decays make denormal numbers, on which CPUs are slow; they are flushed to zero.

    Raises:
        UserError: "cuda" is asked for and is not there, more threads than any machine has, or SSM_KERNELS_INSTRUCTIONS
            names what this processor lacks.
    """
    try:
        instructions()
    except InstructionsError as error:
        raise UserError(str(error)) from None
    if threads is not None:
        if threads > MOST_THREADS:
            raise UserError(f"--threads {threads}: expected {MOST_THREADS} at most; this machine has {os.cpu_count()}")
        torch.set_num_threads(threads)
    torch.set_flush_denormal(True)
    keep_freed_memory()
    if name == "auto":
        name = "cuda" if torch.cuda.is_available() else "cpu"
    if name == "cuda" and not torch.cuda.is_available():
        raise UserError("device 'cuda' is not there (torch sees no GPU); use --device cpu or auto")
    if name == "cpu" or "LOCAL_RANK" not in os.environ:
        return torch.device(name)
    index = int(os.environ["LOCAL_RANK"])  # one of several processes on this machine: a GPU each
    if index >= torch.cuda.device_count():
        raise UserError(f"process {index} of this machine has no GPU of its own; it has {torch.cuda.device_count()}")
    torch.cuda.set_device(index)
    return torch.device("cuda", index)


def keep_freed_memory() -> None:
    """Let this process keep what it frees, where its C library is glibc and the user has not set it otherwise."""
    if any(name in os.environ for name in ("MALLOC_MMAP_THRESHOLD_", "MALLOC_TRIM_THRESHOLD_")):
        return
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is not None:
        mallopt(*MMAP_THRESHOLD)
        mallopt(*TRIM_THRESHOLD)


def device_name(device: torch.device) -> str:
    """The device in words, for provenance."""
    if device.type == "cuda":
        return torch.cuda.get_device_name(device)
    return f"{device.type}, {torch.get_num_threads()} thread{'s' if torch.get_num_threads() > 1 else ''}"


def seconds_of(call: Callable[[], object], device: torch.device) -> float:
    """How long one call takes, with all the work that it gives to a GPU and none that was there before."""
    _wait(device)
    start = time.perf_counter()
    call()
    _wait(device)
    return time.perf_counter() - start


def _wait(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize(device)
