"""Several processes train the run that one trains, whatever starts its sequences, and go on where others stopped."""

from __future__ import annotations

import os
import signal
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from small import run_spec
from training.processes import run_team

from ssm.base.exit_codes import LOST, REQUEUE
from ssm.base.stopping import StopRequest
from ssm.base.tables import METRICS, read_table
from ssm.data.store import TokenStore
from ssm.models.checkpoint import load_tensors
from ssm.specs.training import RunSpec
from ssm.training import checkpointing, loop, parallel
from ssm.training import step as training_step
from ssm.training.distributed import SINGLE_PROCESS, ProcessGroup
from ssm.training.loop import Interval
from ssm.training.machine import Machine
from ssm.training.step import Stepper

CPU = torch.device("cpu")
STEPS = 24
exhaustive = pytest.mark.exhaustive
POLICIES: list[dict[str, Any]] = [
    {"policy": "zero"},
    {"policy": "state_passing", "p_zero": 0.2},
    {"policy": "fitted_noise", "p_zero": 0.2},
    {"policy": "random_noise", "sigma": 0.3, "p_zero": 0.2},
    {"policy": "tbtt", "p_zero": 0.1},
]


def spec_of(store: TokenStore, policy: dict[str, Any], **changes: Any) -> RunSpec:
    """A run whose gradient is clipped at every step, so that the norm must be that of the global batch."""
    recipe = {"batch_tokens": 128, "clip_norm": 0.05, "budget": {"steps": STEPS}, "snapshots": [0.5]} | changes
    return run_spec(store.spec, initial_state=policy, **recipe)


def train(
    group: ProcessGroup,
    run: RunSpec,
    tokens: Path,
    folder: Path,
    at: int = 0,
    rank: int = 0,
    number: int = 0,
    one_piece: int = parallel.ONE_PIECE,
    **machine: Any,
) -> None:
    """Train; the process of `rank` gets the signal `number` in step `at`. Checkpoints are written every 10 steps.

    With `one_piece` 0 the model counts as large: autograd makes its gradients one by one, and DDP sums them.
    """
    make, usual = Stepper.train_step, parallel.ONE_PIECE

    def interrupted(stepper: Stepper, step: int, stop: StopRequest | None) -> dict[str, Any] | None:
        row = make(stepper, step, stop)
        if step == at and group.rank == rank:
            os.kill(os.getpid(), number)
        return row

    Stepper.train_step = interrupted  # type: ignore[method-assign]
    parallel.ONE_PIECE = one_piece
    try:
        loop.train(run, TokenStore.open(tokens), folder, CPU, None, Interval(steps=10), Machine(group, **machine))
    finally:
        Stepper.train_step = make  # type: ignore[method-assign]
        parallel.ONE_PIECE = usual


def together(size: int, run: RunSpec, store: TokenStore, folder: Path, *at: int, **machine: Any) -> set[int | None]:
    return set(run_team(size, _train, run, store.folder, folder, at, machine))


def _train(
    group: ProcessGroup, run: RunSpec, tokens: Path, folder: Path, at: tuple[int, ...], machine: dict[str, Any]
) -> None:
    train(group, run, tokens, folder, *at, **machine)


def column(folder: Path, name: str) -> np.ndarray:
    return read_table(folder / "metrics.parquet", METRICS)[name].to_numpy()


def same_curves(one: Path, other: Path) -> None:
    np.testing.assert_allclose(column(other, "loss"), column(one, "loss"), rtol=1e-5)
    np.testing.assert_allclose(column(other, "grad_norm"), column(one, "grad_norm"), rtol=1e-3)
    np.testing.assert_allclose(column(other, "state_norm"), column(one, "state_norm"), rtol=1e-4)


def bits(path: Path) -> dict[str, bytes]:
    return {name: tensor.numpy().tobytes() for name, tensor in load_tensors(path)[0].items()}


@pytest.mark.parametrize("sizes", [(2,), pytest.param((2, 4), marks=exhaustive)], ids=["two", "two and four"])
@pytest.mark.parametrize(
    "policy",
    [*POLICIES[:3:2], *(pytest.param(policy, marks=exhaustive) for policy in (POLICIES[1], *POLICIES[3:]))],
    ids=lambda policy: policy["policy"],
)
def test_one_two_and_four_processes_train_the_same_run(
    policy: dict[str, Any], sizes: tuple[int, ...], store: TokenStore, tmp_path: Path
) -> None:
    run = spec_of(store, policy)
    train(SINGLE_PROCESS, run, store.folder, tmp_path / "1")
    assert column(tmp_path / "1", "grad_norm").min() > run.training.clip_norm
    for size in sizes:
        assert together(size, run, store, tmp_path / str(size)) == {0}
        same_curves(tmp_path / "1", tmp_path / str(size))
        assert (tmp_path / str(size) / "snapshots" / "at0.5.safetensors").exists()
    if policy["policy"] != "zero":
        assert column(tmp_path / "1", "state_norm")[1:].min() > 0


@pytest.mark.parametrize("size", [2, pytest.param(4, marks=exhaustive)])
def test_gradients_of_a_large_model_are_those_of_a_small_one(size: int, store: TokenStore, tmp_path: Path) -> None:
    """In one process to the bit, whether they are clipped or not; DDP adds them up in another order."""
    policy = {"policy": "state_passing", "p_zero": 0.2}
    for clip_norm in (100.0, 0.05):
        run = spec_of(store, policy, micro_batch_tokens=32, clip_norm=clip_norm)
        train(SINGLE_PROCESS, run, store.folder, tmp_path / f"small{clip_norm}")
        train(SINGLE_PROCESS, run, store.folder, tmp_path / f"large{clip_norm}", one_piece=0)
        for name in ("model.safetensors", "checkpoint.safetensors"):
            assert bits(tmp_path / f"large{clip_norm}" / name) == bits(tmp_path / f"small{clip_norm}" / name)
    assert together(size, run, store, tmp_path / "team", one_piece=0) == {0}
    same_curves(tmp_path / f"small{clip_norm}", tmp_path / "team")


@pytest.mark.parametrize(
    ("policy", "one_piece", "size"),
    [
        (POLICIES[1], parallel.ONE_PIECE, 2),
        pytest.param(POLICIES[1], parallel.ONE_PIECE, 4, marks=exhaustive),
        pytest.param(POLICIES[2], 0, 4, marks=exhaustive),
    ],
    ids=["state_passing, two", "state_passing, four", "fitted_noise, ddp"],
)
def test_a_stopped_run_goes_on_in_as_many_processes_bitwise_and_in_any_other_number(
    policy: dict[str, Any], one_piece: int, size: int, store: TokenStore, tmp_path: Path
) -> None:
    """DDP with four, for the order in which its sums are made depends on how these are cut (see `_settle`)."""
    run, how = spec_of(store, policy), {"one_piece": one_piece}
    assert together(size, run, store, tmp_path / "whole", **how) == {0}
    for name in ("again", "one"):
        told = 13, size // 2, signal.SIGTERM  # one of them is
        assert together(size, run, store, tmp_path / name, *told, **how) == {REQUEUE}
        assert load_tensors(tmp_path / name / "checkpoint.safetensors")[1]["step"] == 20
    assert together(size, run, store, tmp_path / "again", **how) == {0}
    train(SINGLE_PROCESS, run, store.folder, tmp_path / "one")
    for name in ("model.safetensors", "checkpoint.safetensors"):
        assert bits(tmp_path / "again" / name) == bits(tmp_path / "whole" / name)
    np.testing.assert_array_equal(column(tmp_path / "again", "loss"), column(tmp_path / "whole", "loss"))
    same_curves(tmp_path / "whole", tmp_path / "one")


@pytest.mark.parametrize(
    ("policy", "machine"),
    [
        (POLICIES[1], {}),
        pytest.param(POLICIES[4], {"one_piece": 0}, marks=exhaustive),
        pytest.param(POLICIES[2], {"shard": True, "micro_batch_tokens": 32}, marks=exhaustive),
    ],
    ids=["one piece", "ddp", "fsdp"],
)
def test_kill_9_of_one_ends_all_and_the_resumed_run_is_bitwise_the_same(
    policy: dict[str, Any], machine: dict[str, Any], store: TokenStore, tmp_path: Path
) -> None:
    run = spec_of(store, policy)
    assert together(2, run, store, tmp_path / "whole", **machine) == {0}
    for rank in (0, 1):
        folder = tmp_path / f"killed{rank}"
        assert together(2, run, store, folder, 15, rank, signal.SIGKILL, **machine) == {-signal.SIGKILL, LOST}
        assert load_tensors(folder / "checkpoint.safetensors")[1]["step"] == 10
        assert together(2, run, store, folder, **machine) == {0}
        assert bits(folder / "model.safetensors") == bits(tmp_path / "whole" / "model.safetensors")


def leave_in_the_middle(group: ProcessGroup, run: RunSpec, tokens: Path, folder: Path, machine: dict[str, Any]) -> None:
    """The last process is told to end in the first micro-batch of step 7, while steps count as long."""
    make, loss_of, slow = Stepper.train_step, training_step.loss_of, checkpointing.SLOW
    now = [0]

    def noted(stepper: Stepper, step: int, stop: StopRequest | None) -> dict[str, Any] | None:
        now[0] = step
        return make(stepper, step, stop)

    def told(*arguments: Any) -> Any:
        if now[0] == 7 and group.rank == group.size - 1:
            os.kill(os.getpid(), signal.SIGUSR1)
        return loss_of(*arguments)

    Stepper.train_step, training_step.loss_of, checkpointing.SLOW = noted, told, 0.0  # type: ignore[method-assign]
    try:
        train(group, run, tokens, folder, **machine)
    finally:
        Stepper.train_step, training_step.loss_of, checkpointing.SLOW = make, loss_of, slow  # type: ignore[method-assign]


@pytest.mark.parametrize(
    "machine",
    [{}, pytest.param({"one_piece": 0}, marks=exhaustive), pytest.param({"shard": True}, marks=exhaustive)],
    ids=["one piece", "ddp", "fsdp"],
)
def test_all_leave_a_long_step_together(machine: dict[str, Any], store: TokenStore, tmp_path: Path) -> None:
    machine = {"micro_batch_tokens": 32} | machine
    run = spec_of(store, {"policy": "fitted_noise", "p_zero": 0.2})
    assert run_team(2, leave_in_the_middle, run, store.folder, tmp_path / "left", machine) == [REQUEUE] * 2
    assert load_tensors(tmp_path / "left" / "checkpoint.safetensors")[1]["step"] == 6
    for folder in ("left", "whole"):
        assert together(2, run, store, tmp_path / folder, **machine) == {0}
    assert bits(tmp_path / "left" / "model.safetensors") == bits(tmp_path / "whole" / "model.safetensors")


@exhaustive
def test_a_sharded_model_is_the_same_run_and_its_checkpoint_any_other(store: TokenStore, tmp_path: Path) -> None:
    run = spec_of(store, {"policy": "state_passing", "p_zero": 0.2}, activation_checkpointing=True)
    train(SINGLE_PROCESS, run, store.folder, tmp_path / "1")
    folder = tmp_path / "sharded"
    assert together(2, run, store, folder, 7, 0, signal.SIGTERM, shard=True) == {REQUEUE}
    assert together(2, run, store, folder, 17, 0, signal.SIGTERM, shard=True, micro_batch_tokens=32) == {REQUEUE}
    train(SINGLE_PROCESS, run, store.folder, folder)
    same_curves(tmp_path / "1", folder)


def test_micro_batches_of_the_machine_change_no_curve(store: TokenStore, tmp_path: Path) -> None:
    run = spec_of(store, {"policy": "fitted_noise"})
    train(SINGLE_PROCESS, run, store.folder, tmp_path / "1")
    train(SINGLE_PROCESS, run, store.folder, tmp_path / "parts", micro_batch_tokens=32)
    assert together(2, run, store, tmp_path / "2", micro_batch_tokens=16) == {0}
    same_curves(tmp_path / "1", tmp_path / "parts")
    same_curves(tmp_path / "1", tmp_path / "2")


def test_an_error_of_one_process_ends_all_with_its_code(store: TokenStore, tmp_path: Path) -> None:
    run = spec_of(store, {"policy": "zero"})
    (tmp_path / "file").write_text("")
    assert set(run_team(2, _train, run, store.folder, tmp_path / "file", (), {})) == {2}  # main cannot make its folder
    assert set(run_team(3, _train, run, store.folder, tmp_path / "x", (), {})) == {2}  # 8 sequences for 3 processes


SHAPES = [(), (0,), (3,), (4, 5), (2, 0, 4), (2, 3, 4), (parallel.ONE_PIECE // 4 + 1,)]


def sums(group: ProcessGroup) -> None:
    mine = torch.randn(1000, generator=torch.Generator().manual_seed(group.rank))
    values = mine.clone()
    group.add_up(values)
    assert torch.equal(group.stacked(values), values.expand(group.size, -1))  # the same bits in every process
    torch.testing.assert_close(values, group.stacked(mine).sum(0))
    for dtype in (torch.float32, torch.float64, torch.int32, torch.int64):
        for shape in SHAPES:
            every = [torch.arange(rank, rank + torch.Size(shape).numel()) % 7 for rank in range(group.size)]
            stack = torch.stack([one.view(shape).to(dtype) for one in every])
            mine = stack[group.rank].clone()
            assert torch.equal(group.total(mine), stack.sum(0, dtype=dtype))
            assert torch.equal(mine, stack[group.rank])  # a total leaves what it is given
            assert torch.equal(group.stacked(mine), stack)
            if mine.dim() == 2:
                assert torch.equal(group.total(mine.T), stack.sum(0, dtype=dtype).T)


@pytest.mark.parametrize("size", [2, pytest.param(3, marks=exhaustive), 4])
def test_sums_are_exact_and_the_same_in_every_process(size: int) -> None:
    """Of every dtype and shape, from scalars and empty tensors to more than ONE_PIECE."""
    assert run_team(size, sums) == [0] * size
