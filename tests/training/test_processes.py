"""Several processes train the same run as one process, with every policy, and after signals and kills."""

from __future__ import annotations

import dataclasses
import errno
import json
import os
import shutil
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NoReturn

import numpy as np
import pytest
import torch
from small import run_spec
from torch.distributed import HashStore
from training.processes import run_team

from ssm.base.checksum import stored_checksum
from ssm.base.errors import CheckpointError, ConfigError
from ssm.base.exit_codes import LOST, REQUEUE
from ssm.base.stopping import StopRequest
from ssm.base.tables import METRICS, read_table
from ssm.data.store import TokenStore
from ssm.models.weights_file import load_tensors, save_tensors
from ssm.specs.training import RunSpec
from ssm.training import checkpoint_schedule, loop, parallel
from ssm.training import step as training_step
from ssm.training.checkpoint_schedule import CheckpointSchedule
from ssm.training.distributed import SINGLE_PROCESS, ProcessGroup, process_group
from ssm.training.failure_detection import FailureDetector
from ssm.training.job import Machine
from ssm.training.step import Stepper

CPU = torch.device("cpu")
STEPS = 24
exhaustive = pytest.mark.exhaustive
POLICIES: dict[str, dict[str, Any]] = {
    "zero": {"policy": "zero"},
    "state_passing": {"policy": "state_passing", "p_zero": 0.2},
    "fitted_noise": {"policy": "fitted_noise", "p_zero": 0.2},
    "random_noise": {"policy": "random_noise", "sigma": 0.3, "p_zero": 0.2},
    "tbtt": {"policy": "tbtt", "p_zero": 0.1},
}


def spec_of(store: TokenStore, policy: str, **changes: Any) -> RunSpec:
    """A run that clips the gradient at every step, so that a wrong norm would change its weights."""
    recipe = {"batch_tokens": 128, "clip_norm": 0.05, "budget": {"steps": STEPS}, "snapshots": [0.5]} | changes
    return run_spec(store.spec, initial_state=POLICIES[policy], **recipe)


def train(
    group: ProcessGroup,
    run: RunSpec,
    tokens: Path,
    folder: Path,
    at: int = 0,
    rank: int = 0,
    number: int = 0,
    flat: int = parallel.FLAT_BYTES,
    **machine: Any,
) -> None:
    """Train. In step `at`, the process of `rank` gets the signal `number`. Checkpoints are due every 10 steps.

    With `flat` 0 the model counts as large, so that DDP sums its gradients.
    """
    make, usual = Stepper.train_step, parallel.FLAT_BYTES

    def interrupted(stepper: Stepper, step: int, stop: StopRequest | None) -> dict[str, Any] | None:
        row = make(stepper, step, stop)
        if step == at and group.rank == rank:
            os.kill(os.getpid(), number)
        return row

    Stepper.train_step = interrupted  # type: ignore[method-assign]
    parallel.FLAT_BYTES = flat
    try:
        checkpoints = CheckpointSchedule(steps=10)
        loop.train(run, TokenStore.open(tokens), folder, CPU, None, checkpoints, Machine(group, **machine))
    finally:
        Stepper.train_step = make  # type: ignore[method-assign]
        parallel.FLAT_BYTES = usual


def together(size: int, run: RunSpec, store: TokenStore, folder: Path, *at: int, **machine: Any) -> set[int | None]:
    """Train in a group of processes; returns their exit codes. `at` and `machine` are arguments of `train`."""
    return set(run_team(size, _train, run, store.folder, folder, at, machine))


def _train(
    group: ProcessGroup, run: RunSpec, tokens: Path, folder: Path, at: tuple[int, ...], machine: dict[str, Any]
) -> None:
    train(group, run, tokens, folder, *at, **machine)


@pytest.fixture(scope="module")
def finished(store: TokenStore, tmp_path_factory: pytest.TempPathFactory) -> Callable[..., Path]:
    """The folder of an uninterrupted run in a group of `size` processes; trained once per module."""
    folders: dict[str, Path] = {}

    def folder_of(run: RunSpec, size: int, **machine: Any) -> Path:
        key = f"{run.id} {size} {machine}"
        if key not in folders:
            folders[key] = folder = tmp_path_factory.mktemp("finished")
            if size == 1:
                train(SINGLE_PROCESS, run, store.folder, folder, **machine)
            else:
                assert together(size, run, store, folder, **machine) == {0}
        return folders[key]

    return folder_of


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
    [
        pytest.param(name, marks=exhaustive if name in ("state_passing", "random_noise", "tbtt") else ())
        for name in POLICIES
    ],
)
def test_several_processes_train_the_same_run(
    policy: str, sizes: tuple[int, ...], store: TokenStore, finished: Callable[..., Path]
) -> None:
    run = spec_of(store, policy)
    one = finished(run, 1)
    assert column(one, "grad_norm").min() > run.training.clip_norm
    for size in sizes:
        several = finished(run, size)
        same_curves(one, several)
        assert (several / "snapshots" / "at0.5.safetensors").exists()
    if policy != "zero":
        assert column(one, "state_norm")[1:].min() > 0


@pytest.mark.parametrize("size", [2, pytest.param(4, marks=exhaustive)])
def test_gradients_of_a_large_model_equal_those_of_a_small_one(
    size: int, store: TokenStore, finished: Callable[..., Path]
) -> None:
    """Bitwise in one process, clipped or not. DDP sums in another order."""
    for clip_norm in (100.0, 0.05):
        run = spec_of(store, "state_passing", micro_batch_tokens=32, clip_norm=clip_norm)
        small, large = finished(run, 1), finished(run, 1, flat=0)
        for name in ("model.safetensors", "checkpoint.safetensors"):
            assert bits(large / name) == bits(small / name)
    same_curves(small, finished(run, size, flat=0))


@pytest.mark.parametrize(
    ("policy", "flat", "size"),
    [
        ("state_passing", parallel.FLAT_BYTES, 2),
        pytest.param("state_passing", parallel.FLAT_BYTES, 4, marks=exhaustive),
        pytest.param("fitted_noise", 0, 4, marks=exhaustive),
    ],
    ids=["state_passing, two", "state_passing, four", "fitted_noise, ddp"],
)
def test_a_stopped_run_continues_bitwise_in_as_many_processes_and_closely_in_one(
    policy: str,
    flat: int,
    size: int,
    store: TokenStore,
    finished: Callable[..., Path],
    tmp_path: Path,
) -> None:
    """DDP is tested with four processes, because there its buckets decide the order of sums (`Stepper.warm_up`)."""
    run, machine = spec_of(store, policy), {"flat": flat}
    whole = finished(run, size, **machine)
    stopped = tmp_path / "again"
    assert together(size, run, store, stopped, 13, size // 2, signal.SIGTERM, **machine) == {REQUEUE}
    assert load_tensors(stopped / "checkpoint.safetensors")[1]["step"] == 20
    shutil.copytree(stopped, tmp_path / "one")
    assert together(size, run, store, stopped, **machine) == {0}
    train(SINGLE_PROCESS, run, store.folder, tmp_path / "one")
    for name in ("model.safetensors", "checkpoint.safetensors"):
        assert bits(stopped / name) == bits(whole / name)
    np.testing.assert_array_equal(column(stopped, "loss"), column(whole, "loss"))
    same_curves(whole, tmp_path / "one")


@pytest.mark.parametrize(
    ("policy", "machine"),
    [
        ("state_passing", {"flat": parallel.FLAT_BYTES}),
        pytest.param("tbtt", {"flat": 0}, marks=exhaustive),
        pytest.param("fitted_noise", {"shard": True, "micro_batch_tokens": 32}, marks=exhaustive),
    ],
    ids=["flat", "ddp", "fsdp"],
)
def test_kill_9_of_any_process_ends_all_and_the_run_resumes_bitwise(
    policy: str, machine: dict[str, Any], store: TokenStore, finished: Callable[..., Path], tmp_path: Path
) -> None:
    """One run loses process 0 in step 15, and process 1 in step 22."""
    run = spec_of(store, policy)
    for rank, step, saved in ((0, 15, 10), (1, 22, 20)):
        codes = together(2, run, store, tmp_path, step, rank, signal.SIGKILL, **machine)
        assert codes == {-signal.SIGKILL, LOST}
        assert load_tensors(tmp_path / "checkpoint.safetensors")[1]["step"] == saved
    assert together(2, run, store, tmp_path, **machine) == {0}
    assert bits(tmp_path / "model.safetensors") == bits(finished(run, 2, **machine) / "model.safetensors")


def leave_in_the_middle(group: ProcessGroup, run: RunSpec, tokens: Path, folder: Path, machine: dict[str, Any]) -> None:
    """The last process gets a signal in the first micro-batch of step 7. All steps count as slow."""
    make, loss_of, slow = Stepper.train_step, training_step.loss_of, checkpoint_schedule.SLOW
    now = [0]

    def noted(stepper: Stepper, step: int, stop: StopRequest | None) -> dict[str, Any] | None:
        now[0] = step
        return make(stepper, step, stop)

    def signaled(*arguments: Any) -> Any:
        if now[0] == 7 and group.rank == group.size - 1:
            os.kill(os.getpid(), signal.SIGUSR1)
        return loss_of(*arguments)

    Stepper.train_step, training_step.loss_of, checkpoint_schedule.SLOW = noted, signaled, 0.0  # type: ignore[method-assign]
    try:
        train(group, run, tokens, folder, **machine)
    finally:
        Stepper.train_step, training_step.loss_of, checkpoint_schedule.SLOW = make, loss_of, slow  # type: ignore[method-assign]


@pytest.mark.parametrize(
    "machine",
    [{}, pytest.param({"flat": 0}, marks=exhaustive), pytest.param({"shard": True}, marks=exhaustive)],
    ids=["flat", "ddp", "fsdp"],
)
def test_all_processes_leave_a_long_step_together(
    machine: dict[str, Any], store: TokenStore, finished: Callable[..., Path], tmp_path: Path
) -> None:
    machine = {"micro_batch_tokens": 32} | machine
    run = spec_of(store, "fitted_noise")
    assert run_team(2, leave_in_the_middle, run, store.folder, tmp_path, machine) == [REQUEUE] * 2
    assert load_tensors(tmp_path / "checkpoint.safetensors")[1]["step"] == 6
    assert together(2, run, store, tmp_path, **machine) == {0}
    whole = finished(run, 2, **machine)
    assert bits(tmp_path / "model.safetensors") == bits(whole / "model.safetensors")


@exhaustive
def test_a_sharded_model_trains_the_same_run_and_writes_the_same_checkpoint(
    store: TokenStore, finished: Callable[..., Path], tmp_path: Path
) -> None:
    run = spec_of(store, "state_passing", activation_checkpointing=True)
    assert together(2, run, store, tmp_path, 7, 0, signal.SIGTERM, shard=True) == {REQUEUE}
    assert together(2, run, store, tmp_path, 17, 0, signal.SIGTERM, shard=True, micro_batch_tokens=32) == {REQUEUE}
    train(SINGLE_PROCESS, run, store.folder, tmp_path)
    same_curves(finished(run, 1), tmp_path)


def test_micro_batches_change_no_curve(store: TokenStore, finished: Callable[..., Path]) -> None:
    run = spec_of(store, "fitted_noise")
    same_curves(finished(run, 1), finished(run, 1, micro_batch_tokens=16))
    same_curves(finished(run, 1), finished(run, 2, micro_batch_tokens=32))


def read_own_disks(group: ProcessGroup, run: RunSpec, tokens: Path, folder: Path, other: Path, fresh: Path) -> None:
    """Process 1 has no checkpoint, then another text, seed and parent, and at last the same finished run."""
    store, seed = TokenStore.open(tokens), run.model_copy(update={"seed": 4})
    child = run_spec(store.spec, parent=run, budget={"steps": 2})
    text = dataclasses.replace(store, manifest=store.manifest | {"corpus": {"sha256": "other"}})
    same = (run, store, folder, CPU)
    own = {
        "checkpoint": (same, (run, store, fresh, CPU)),
        "text": (same, (run, text, folder, CPU)),
        "run": (same, (seed, store, fresh, CPU)),
        "parent": ((child, store, fresh, CPU, folder), (child, store, fresh, CPU, other)),
    }
    for what, inputs in own.items():
        with pytest.raises(CheckpointError, match=f"process 1 has {what} .*, process 0 has {what} .*: SPEC"):
            loop.train(*inputs[group.rank], machine=Machine(group))
    before = (folder / "run.json").read_text()
    assert loop.train(*same, machine=Machine(group)) == json.loads(before)
    assert (folder / "run.json").read_text() == before


def test_processes_that_read_disks_of_their_own_are_refused(
    store: TokenStore, finished: Callable[..., Path], tmp_path: Path
) -> None:
    run = spec_of(store, "zero")
    for name in ("run", "other"):
        shutil.copytree(finished(run, 1), tmp_path / name)
    weights, record = tmp_path / "other/model.safetensors", tmp_path / "other/run.json"
    tensors, header = load_tensors(weights)
    digest = stored_checksum(weights)
    save_tensors(weights, {name: 2 * tensor for name, tensor in tensors.items()}, header)
    record.write_text(record.read_text().replace(str(digest), str(stored_checksum(weights))))
    folders = (tmp_path / name for name in ("run", "other", "fresh"))
    assert run_team(2, read_own_disks, run, store.folder, *folders) == [0, 0]


def test_an_error_of_one_process_ends_all_with_its_code(store: TokenStore, tmp_path: Path) -> None:
    run = spec_of(store, "zero")
    (tmp_path / "file").write_text("")
    assert set(run_team(2, _train, run, store.folder, tmp_path / "file", (), {})) == {2}  # main cannot make its folder
    with pytest.raises(ConfigError, match="a batch of 8 sequences cannot be split evenly over 3 processes"):
        Machine(ProcessGroup(0, 3)).rows_and_micro_batch(run.training)


@pytest.mark.parametrize(
    ("error", "says"),
    [
        (RuntimeError("CUDA out of memory.\nMore."), "out of memory (CUDA out of memory.); less is needed with a --b"),
        (PermissionError(errno.EACCES, "Permission denied", "/x"), "/x: Permission denied"),
        (OSError(errno.ENOSPC, "No space left", "/tmp/x"), "/tmp/x: cannot be written (No space left)"),
    ],
)
def test_an_error_of_the_machine_is_one_line_also_in_a_group(
    error: Exception, says: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """No other process can be its cause, so none is waited for. Nothing can be written to stdout any more."""

    def leave(code: int) -> NoReturn:
        raise SystemExit(code)

    def full() -> NoReturn:
        raise OSError(errno.ENOSPC, "No space left")

    monkeypatch.setattr(os, "_exit", leave)
    detector = FailureDetector(0, 1, "localhost", HashStore(), "train", "a --b")
    monkeypatch.setattr(detector.ending, "wait", lambda _: pytest.fail("it waits"))
    monkeypatch.setattr(sys, "stdout", SimpleNamespace(flush=full))
    with pytest.raises(SystemExit) as stop, detector:
        raise error
    monkeypatch.undo()
    assert (stop.value.code, capsys.readouterr().err) == (2, f"ssm train: {says}\n")


@pytest.mark.parametrize(
    ("variables", "says"),
    [
        ({"WORLD_SIZE": "two"}, "WORLD_SIZE is 'two', expected a whole number; use torchrun, or --processes N"),
        ({"WORLD_SIZE": "2"}, "WORLD_SIZE is set, but RANK is missing; use torchrun, or --processes N"),
        ({"WORLD_SIZE": "2", "RANK": "a"}, "RANK is 'a', expected a whole number; use torchrun, or --processes N"),
        ({"WORLD_SIZE": "2", "RANK": "0", "MASTER_ADDR": "x", "MASTER_PORT": "y"}, "MASTER_PORT is 'y', expected a "),
        ({"WORLD_SIZE": "2", "RANK": "2", "MASTER_ADDR": "x", "MASTER_PORT": "1"}, "RANK is 2, expected 0 to 1, bec"),
    ],
)
def test_a_wrong_variable_of_a_group_is_named(
    variables: dict[str, str], says: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("RANK", "MASTER_ADDR", "MASTER_PORT"):
        monkeypatch.delenv(name, raising=False)
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    with pytest.raises(ConfigError, match=f"^{says}"), process_group(CPU, "train"):
        pytest.fail("there is no group")


SHAPES = [(), (0,), (3,), (4, 5), (2, 0, 4), (2, 3, 4), (parallel.FLAT_BYTES // 4 + 1,)]


def sums(group: ProcessGroup) -> None:
    mine = torch.randn(1000, generator=torch.Generator().manual_seed(group.rank))
    values = mine.clone()
    group.all_reduce(values)
    assert torch.equal(group.all_gather(values), values.expand(group.size, -1))  # the same bits in every process
    torch.testing.assert_close(values, group.all_gather(mine).sum(0))
    for dtype in (torch.float32, torch.float64, torch.int32, torch.int64):
        for shape in SHAPES:
            every = [torch.arange(rank, rank + torch.Size(shape).numel()) % 7 for rank in range(group.size)]
            stack = torch.stack([values.view(shape).to(dtype) for values in every])
            mine = stack[group.rank].clone()
            assert torch.equal(group.total(mine), stack.sum(0, dtype=dtype))
            assert torch.equal(mine, stack[group.rank])  # `total` does not change its argument
            assert torch.equal(group.all_gather(mine), stack)
            if mine.dim() == 2:
                assert torch.equal(group.total(mine.T), stack.sum(0, dtype=dtype).T)


@pytest.mark.parametrize("size", [pytest.param(2, marks=exhaustive), 3, pytest.param(4, marks=exhaustive)])
def test_sums_are_exact_and_equal_in_every_process(size: int) -> None:
    """For every dtype and shape, from scalars and empty tensors to more than FLAT_BYTES bytes."""
    assert run_team(size, sums) == [0] * size
