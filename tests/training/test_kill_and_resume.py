"""kill -9 at random moments: the resumed run equals the uninterrupted one bitwise."""

from __future__ import annotations

import random
import threading
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import pytest
from forked_processes import PROCESSES
from small import run_spec

from ssm.base.tables import METRICS, read_table
from ssm.data.store import TokenStore
from ssm.models.weights_file import load_tensors
from ssm.specs.training import RunSpec


def job(run: RunSpec, tokens: Path, folder: Path, saved: Connection) -> None:
    """Train with a checkpoint every 5 steps, and send the step of each one."""
    import torch

    from ssm.training import checkpoint_schedule, loop

    save = checkpoint_schedule.save_checkpoint

    def sending(*args: Any) -> None:
        save(*args)
        saved.send(args[2])  # the step

    checkpoint_schedule.save_checkpoint = sending
    torch.set_num_threads(1)
    often = checkpoint_schedule.CheckpointSchedule(steps=5)
    loop.train(run, TokenStore.open(tokens), folder, torch.device("cpu"), checkpoints=often)


def kill_until_finished(run: RunSpec, store: TokenStore, folder: Path, kills: int, seed: int) -> list[int]:
    """Start the job until it finishes; kill it `kills` times, each at a random moment after a checkpoint.

    Returns the step of the checkpoint that each killed process left.
    """
    moments, left = random.Random(seed), []
    while True:
        received, saved = PROCESSES.Pipe(duplex=False)
        process = PROCESSES.Process(target=job, args=(run, store.folder, folder, saved))
        process.start()
        saved.close()
        timer = None
        if len(left) < kills:
            for _ in range(moments.randint(1, 3)):
                received.recv()
            timer = threading.Timer(moments.uniform(0, 0.06), process.kill)  # during steps or a checkpoint
            timer.start()
        process.join()
        if timer is not None:
            timer.cancel()
        if process.exitcode == 0:
            return left
        assert process.exitcode == -9
        left.append(load_tensors(folder / "checkpoint.safetensors")[1]["step"])


@pytest.mark.parametrize(
    ("policy", "kills"),
    [
        ({"policy": "state_passing", "p_zero": 0.2}, 2),
        pytest.param({"policy": "fitted_noise", "p_zero": 0.2}, 3, marks=pytest.mark.exhaustive),
        pytest.param({"policy": "tbtt", "p_zero": 0.1}, 3, marks=pytest.mark.exhaustive),
    ],
    ids=lambda value: value["policy"] if isinstance(value, dict) else "",
)
def test_a_killed_run_resumes_to_the_same_bits(
    policy: dict[str, Any], kills: int, store: TokenStore, tmp_path: Path
) -> None:
    steps = 30 * kills  # long enough that the last kill comes before the end
    run = run_spec(store.spec, initial_state=policy, budget={"steps": steps}, snapshots=[0.4], micro_batch_tokens=32)
    _received, saved = PROCESSES.Pipe(duplex=False)
    process = PROCESSES.Process(target=job, args=(run, store.folder, tmp_path / "whole", saved))
    process.start()
    process.join()
    assert process.exitcode == 0
    left = kill_until_finished(run, store, tmp_path / "killed", kills, seed=len(policy["policy"]))
    assert len(left) >= kills
    assert left == sorted(set(left))  # every process continued from the last process's checkpoint

    for name in ("model.safetensors", "checkpoint.safetensors", "snapshots/at0.4.safetensors"):
        whole, _ = load_tensors(tmp_path / "whole" / name)
        killed, _ = load_tensors(tmp_path / "killed" / name)
        assert whole.keys() == killed.keys()
        for tensor in whole:
            assert whole[tensor].numpy().tobytes() == killed[tensor].numpy().tobytes(), f"{name}: {tensor}"
    tables = [read_table(tmp_path / name / "metrics.parquet", METRICS) for name in ("whole", "killed")]
    assert tables[0].equals(tables[1])
    assert not list((tmp_path / "killed").rglob(".*.tmp"))
