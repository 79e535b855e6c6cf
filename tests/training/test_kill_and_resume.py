"""kill -9 at random moments: the resumed run is bitwise the uninterrupted one."""

from __future__ import annotations

import multiprocessing
import random
import threading
from pathlib import Path
from typing import Any

import pytest
from small import run_spec

from ssm.base.tables import METRICS, read_table
from ssm.data.store import TokenStore
from ssm.models.checkpoint import load_tensors
from ssm.specs.training import RunSpec

PROCESSES = multiprocessing.get_context("forkserver")
PROCESSES.set_forkserver_preload(["ssm.training.loop"])


def job(run: RunSpec, tokens: Path, folder: Path) -> None:
    import torch

    from ssm.training.loop import Interval, train

    torch.set_num_threads(1)
    train(run, TokenStore.open(tokens), folder, torch.device("cpu"), interval=Interval(steps=5))


def kill_until_finished(run: RunSpec, store: TokenStore, folder: Path, kills: int, seed: int) -> int:
    """Start the job again and again, killing it after a random time until it was killed `kills` times."""
    moments, killed = random.Random(seed), 0
    while True:
        process = PROCESSES.Process(target=job, args=(run, store.folder, folder))
        process.start()
        timer = threading.Timer(moments.uniform(0.02, 0.2), process.kill)
        if killed < kills:
            timer.start()
        process.join()
        timer.cancel()
        if process.exitcode == 0:
            return killed
        assert process.exitcode == -9
        killed += 1


@pytest.mark.parametrize(
    ("policy", "kills"),
    [
        ({"policy": "state_passing", "p_zero": 0.2}, 20),
        ({"policy": "fitted_noise", "p_zero": 0.2}, 6),
        ({"policy": "tbtt", "p_zero": 0.1}, 6),
    ],
    ids=lambda value: value["policy"] if isinstance(value, dict) else "",
)
def test_a_killed_run_resumes_to_the_same_bits(
    policy: dict[str, Any], kills: int, store: TokenStore, tmp_path: Path
) -> None:
    steps = 20 * kills  # long enough that the last kill comes before the end
    run = run_spec(store.spec, initial_state=policy, budget={"steps": steps}, snapshots=[0.4], micro_batch_tokens=32)
    process = PROCESSES.Process(target=job, args=(run, store.folder, tmp_path / "whole"))
    process.start()
    process.join()
    assert process.exitcode == 0
    assert kill_until_finished(run, store, tmp_path / "killed", kills, seed=len(policy["policy"])) >= kills

    for name in ("model.safetensors", "checkpoint.safetensors", "snapshots/at0.4.safetensors"):
        whole, _ = load_tensors(tmp_path / "whole" / name)
        killed, _ = load_tensors(tmp_path / "killed" / name)
        assert whole.keys() == killed.keys()
        for tensor in whole:
            assert whole[tensor].numpy().tobytes() == killed[tensor].numpy().tobytes(), f"{name}: {tensor}"
    tables = [read_table(tmp_path / name / "metrics.parquet", METRICS) for name in ("whole", "killed")]
    assert tables[0].equals(tables[1])
    assert not list((tmp_path / "killed").glob(".*.tmp"))
