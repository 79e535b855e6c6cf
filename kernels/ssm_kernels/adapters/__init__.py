"""Kernels of other projects with this package's signatures. They are for comparison only; models never use them.

    mamba_ssm    selective_scan, chunk_scan and gated_scan (Mamba-2's), causal_conv1d
    fla          gated_scan (linear attention, RetNet, scalar decays, GLA, RWKV-6), delta_scan

Every module has `unavailable(operation, device)`, which returns None or what is missing. Arguments that a peer does not
support (resets, an initial state) raise ValueError.
"""

from __future__ import annotations

from importlib import import_module
from types import ModuleType

PEERS = ("mamba_ssm", "fla")


def peer(name: str) -> ModuleType:
    """The adapter to one of PEERS."""
    return import_module(f"ssm_kernels.adapters.{name}")


def refuse(name: str, operation: str, what: str) -> ValueError:
    """The error for a feature that a peer lacks."""
    return ValueError(f"{name}: {operation} has no {what}")
