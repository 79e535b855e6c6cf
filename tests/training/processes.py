"""Groups of processes for tests."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from typing import Any

from forked_processes import PROCESSES
from torch.distributed import TCPStore

from ssm.training.distributed import ProcessGroup


def run_team(size: int, work: Callable[..., object], *arguments: Any) -> list[int | None]:
    """Run `work(group, *arguments)` in a group of `size` processes; returns their exit codes."""
    store = TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
    group = [PROCESSES.Process(target=_member, args=(rank, size, store.port, work, arguments)) for rank in range(size)]
    for process in group:
        process.start()
    for process in group:
        process.join()
    return [process.exitcode for process in group]


def _member(rank: int, size: int, port: int, work: Callable[..., object], arguments: tuple[Any, ...]) -> None:
    assert "torch._dynamo" in sys.modules, "the server has another list of modules, and this process starts slowly"
    os.environ |= {
        "RANK": str(rank),
        "WORLD_SIZE": str(size),
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": str(port),
        "TORCHELASTIC_USE_AGENT_STORE": "True",
        "GLOO_SOCKET_IFNAME": "lo",
    }
    import torch

    from ssm.base.exit_codes import REQUEUE
    from ssm.base.stopping import Preempted
    from ssm.training.distributed import process_group

    torch.set_num_threads(1)
    try:
        with process_group(torch.device("cpu"), "test") as group:
            assert isinstance(group, ProcessGroup)
            work(group, *arguments)
    except Preempted:
        raise SystemExit(REQUEUE) from None
