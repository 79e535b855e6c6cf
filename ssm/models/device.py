"""The device of a job, and the settings of its process."""

from __future__ import annotations

import ctypes
import os
import warnings

import torch
from ssm_kernels.native import InstructionsError, instructions

from ssm.base.counting import counted
from ssm.base.errors import ConfigError, UserError
from ssm.specs.config import MOST_THREADS

# glibc's mallopt: the process keeps freed blocks below the first size, up to the second size in total. Otherwise each
# training step requests its large blocks from the system again, which takes 6% of the time at a context of 128.
MMAP_THRESHOLD, TRIM_THRESHOLD = (-3, 32 * 2**20), (-1, 512 * 2**20)


def prepare_device(name: str | torch.device, threads: int | None = None) -> torch.device:
    """Set threads, denormals and TF32 of this process, and return the device.

    Decays produce denormal numbers, which are slow on CPUs. They are flushed to zero.

    Args:
        name: cpu, cuda, or auto: the GPU if there is one. The suffix :0 changes nothing.
        threads: CPU threads; None: those that torch has.

    Raises:
        ConfigError: another name, or a wrong number of threads.
        UserError: "cuda" without a GPU, or SSM_KERNELS_INSTRUCTIONS names instructions that this processor lacks.
    """
    name = str(name).removesuffix(":0")
    if name not in ("auto", "cpu", "cuda"):
        raise ConfigError(f"--device {name}: expected auto, cpu or cuda (CUDA_VISIBLE_DEVICES names another GPU)")
    try:
        instructions()
    except InstructionsError as error:
        raise UserError(str(error)) from None
    if threads is not None:
        if not 1 <= threads <= MOST_THREADS:
            raise ConfigError(f"--threads {threads}: expected 1 to {MOST_THREADS}; this machine has {os.cpu_count()}")
        torch.set_num_threads(threads)
    torch.set_flush_denormal(True)
    # By default, cuDNN rounds the inputs of a GRU or a convolution in float32 to TF32, which has 10 bits.
    with warnings.catch_warnings(action="ignore"):  # torch 2.9 advises a new name of this setting
        torch.backends.cudnn.allow_tf32 = False
    keep_freed_memory()
    if name == "auto":
        name = "cuda" if torch.cuda.is_available() else "cpu"
    if name == "cuda" and not torch.cuda.is_available():
        raise UserError("device 'cuda' is not available (torch finds no GPU); use --device cpu or auto")
    if name == "cpu" or "LOCAL_RANK" not in os.environ:
        return torch.device(name)
    index = int(os.environ["LOCAL_RANK"])  # each process on this machine has one GPU
    if index >= torch.cuda.device_count():
        raise UserError(f"no GPU for process {index}: this machine has {torch.cuda.device_count()}, numbered from 0")
    torch.cuda.set_device(index)
    return torch.device("cuda", index)


def keep_freed_memory() -> None:
    """Let this process keep the memory that it frees, if its C library is glibc and the user has not set this."""
    if any(name in os.environ for name in ("MALLOC_MMAP_THRESHOLD_", "MALLOC_TRIM_THRESHOLD_")):
        return
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is not None:
        mallopt(*MMAP_THRESHOLD)
        mallopt(*TRIM_THRESHOLD)


def device_name(device: torch.device) -> str:
    """The device for readers and provenance, such as "cpu, 2 threads"."""
    if device.type == "cuda":
        return torch.cuda.get_device_name(device)
    return f"{device.type}, {counted(torch.get_num_threads(), 'thread')}"
