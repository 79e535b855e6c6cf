"""Which device a job computes on, and how it behaves there."""

from __future__ import annotations

import torch

from ssm.base.errors import UserError


def prepare_device(name: str, threads: int | None = None) -> torch.device:
    """The device called `name` ("auto": a GPU where there is one), with threads and denormals set for this process.

    Decays make denormal numbers, on which CPUs are slow; they are flushed to zero.

    Raises:
        UserError: "cuda" is asked for and is not there.
    """
    if threads is not None:
        torch.set_num_threads(threads)
    torch.set_flush_denormal(True)
    if name == "auto":
        name = "cuda" if torch.cuda.is_available() else "cpu"
    if name == "cuda" and not torch.cuda.is_available():
        raise UserError("device 'cuda' is not there (torch sees no GPU); use --device cpu or auto")
    return torch.device(name)


def device_name(device: torch.device) -> str:
    """The device in words, for provenance."""
    if device.type == "cuda":
        return torch.cuda.get_device_name(device)
    return f"{device.type}, {torch.get_num_threads()} thread{'s' if torch.get_num_threads() > 1 else ''}"
