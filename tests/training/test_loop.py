"""The training loop: what it learns and writes, and that interventions differ only by their policy."""

from __future__ import annotations

import dataclasses
import errno
import fcntl
import json
import math
import shutil
from collections.abc import Callable
from itertools import combinations
from pathlib import Path
from typing import Any

import polars as pl
import pytest
import torch
from safetensors.torch import save_file
from small import make_store, model_spec, run_spec
from torch import Tensor

import ssm.training.loop as loop
import ssm.training.step as training_step
from ssm.base import progress
from ssm.base.discovery import RegistryError
from ssm.base.errors import CheckpointError, ConfigError, DataError
from ssm.base.files import folder_lock
from ssm.base.tables import METRICS, read_table
from ssm.data.store import TokenStore
from ssm.models.backbone import LanguageModel, build_model
from ssm.models.mixers.mamba2 import Mamba2
from ssm.models.state import LayerOutput, State
from ssm.models.weights_file import load_model, load_tensors, snapshot_path
from ssm.specs.training import RunSpec
from ssm.training import lineage
from ssm.training.checkpoint_schedule import CheckpointSchedule
from ssm.training.distributed import SINGLE_PROCESS
from ssm.training.lineage import starting_weights
from ssm.training.loop import train
from ssm.training.metrics import PATIENCE, Metrics

CPU = torch.device("cpu")


def weights(folder: Path) -> dict[str, Tensor]:
    return load_tensors(folder / "model.safetensors")[0]


def same(a: dict[str, Tensor], b: dict[str, Tensor]) -> bool:
    return a.keys() == b.keys() and all(torch.equal(a[name], b[name]) for name in a)


def test_training_learns_and_writes_complete_results(store: TokenStore, tmp_path: Path) -> None:
    """A second call changes nothing. Newer files would make Snakemake measure the run again, and train its children."""
    run = run_spec(store.spec, budget={"steps": 60}, snapshots=[0.5])
    record = train(run, store, tmp_path, CPU)
    metrics = read_table(tmp_path / "metrics.parquet", METRICS)
    assert metrics["step"].to_list() == list(range(1, 61))
    assert metrics["tokens"].to_list() == [64 * step for step in range(1, 61)]
    assert metrics["loss"][:5].mean() > metrics["loss"][-5:].mean() + 0.5
    assert record["status"] == "finished"
    assert json.loads((tmp_path / "run.json").read_text()) == record
    model, trained = load_model(tmp_path / "model.safetensors")
    assert trained == run
    assert record["parameters"] == sum(p.numel() for p in model.parameters())
    halfway, header = load_tensors(snapshot_path(tmp_path, 0.5))
    assert header["step"] == 30
    assert not same(halfway, weights(tmp_path))
    assert not list(tmp_path.glob(".*.tmp"))
    assert not (tmp_path / "good").exists()
    heartbeat = json.loads((tmp_path / progress.HEARTBEATS).read_text())
    assert [heartbeat[name] for name in ("done", "total", "unit", "rate_unit")] == [60, 60, "steps", "tokens"]

    before = {path: path.stat().st_mtime_ns for path in tmp_path.rglob("*.*")}
    assert train(run, store, tmp_path, CPU) == record
    assert {path: path.stat().st_mtime_ns for path in tmp_path.rglob("*.*")} == before
    (tmp_path / "metrics.parquet").unlink()
    again = train(run, store, tmp_path, CPU)
    assert (again["steps"], again["seconds"]) == (record["steps"], record["seconds"])
    assert same(dict(model.state_dict()), weights(tmp_path))
    assert read_table(tmp_path / "metrics.parquet", METRICS).equals(metrics)


def test_a_mixer_that_differs_from_its_spec_is_not_trained(
    store: TokenStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    forward = Mamba2.forward

    def renamed(self: Mamba2, *inputs: Any) -> LayerOutput:
        y, state = forward(self, *inputs)
        return y, {"h": state["memory"]}

    monkeypatch.setattr(Mamba2, "forward", renamed)
    with pytest.raises(RegistryError, match=r"^ssm/models/mixers/mamba2\.py: forward: .* 'memory'"):
        train(run_spec(store.spec), store, tmp_path, CPU)
    assert not (tmp_path / "run.json").exists()


def test_a_run_of_zero_steps_is_the_initialization(store: TokenStore, tmp_path: Path) -> None:
    """It finishes as any other run, and can be a parent. It has no step after which a snapshot is taken."""
    run = run_spec(store.spec, budget={"steps": 0}, snapshots=[0.5])
    assert run.id.startswith("tiny_T16_initialization_s3-")
    record = train(run, store, tmp_path / "zero", CPU)
    assert (record["status"], record["steps"], record["budget_steps"], record["tokens"]) == ("finished", 0, 0, 0)
    assert set(record["weights"]) == {"model.safetensors"}
    model, trained = load_model(tmp_path / "zero" / "model.safetensors")
    assert trained == run
    assert same(dict(model.state_dict()), dict(build_model(run.model, 256, run.seed).state_dict()))
    assert read_table(tmp_path / "zero" / "metrics.parquet", METRICS).is_empty()
    child = starting_weights(run_spec(store.spec, parent=run), tmp_path / "zero")
    assert same(dict(child.state_dict()), dict(model.state_dict()))


def test_the_progress_shows_no_loss_before_there_is_one(
    store: TokenStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    notes: list[str] = []
    advance = loop.Progress.advance

    def noting(self: Any, units: int, work: float, note: str) -> None:
        notes.append(note)
        advance(self, units, work, note)

    monkeypatch.setattr(loop.Progress, "advance", noting)
    train(run_spec(store.spec, budget={"steps": 4}), store, tmp_path, CPU)
    first = read_table(tmp_path / "metrics.parquet", METRICS)["loss"][0]
    assert notes[:2] == ["", f"loss {first:.3f}"]
    assert len(notes) == 4
    assert "nan" not in "".join(notes)


def test_short_runs_keep_every_snapshot(store: TokenStore, tmp_path: Path) -> None:
    run = run_spec(store.spec, budget={"steps": 4}, snapshots=[0.1, 0.2, 0.3, 0.8])
    train(run, store, tmp_path, CPU)
    steps = {
        fraction: load_tensors(snapshot_path(tmp_path, fraction))[1]["step"] for fraction in run.training.snapshots
    }
    assert steps == {0.1: 1, 0.2: 1, 0.3: 1, 0.8: 3}


def test_the_same_run_twice_is_bitwise_equal(store: TokenStore, tmp_path: Path) -> None:
    run = run_spec(store.spec, initial_state={"policy": "fitted_noise", "p_zero": 0.2}, budget={"steps": 12})
    for name in ("a", "b"):
        torch.manual_seed(hash(name) % 1000)  # the global generator must have no effect
        train(run, store, tmp_path / name, CPU)
    assert same(weights(tmp_path / "a"), weights(tmp_path / "b"))
    train(run_spec(store.spec, seed=4, budget={"steps": 12}), store, tmp_path / "c", CPU)
    assert not same(weights(tmp_path / "a"), weights(tmp_path / "c"))


def test_accumulated_micro_batches_give_the_same_run(store: TokenStore, tmp_path: Path) -> None:
    """State Passing with one forward pass per batch, and with four."""
    policy = {"policy": "state_passing", "p_zero": 0.3}
    whole, parts = (
        run_spec(store.spec, initial_state=policy, budget={"steps": 12}, micro_batch_tokens=tokens)
        for tokens in (None, 16)
    )
    train(whole, store, tmp_path / "whole", CPU)
    train(parts, store, tmp_path / "parts", CPU)
    a, b = (read_table(tmp_path / name / "metrics.parquet", METRICS) for name in ("whole", "parts"))
    torch.testing.assert_close(torch.tensor(a["loss"]), torch.tensor(b["loss"]), rtol=2e-5, atol=0)
    torch.testing.assert_close(torch.tensor(a["state_norm"]), torch.tensor(b["state_norm"]), rtol=1e-3, atol=0)
    assert a["state_norm"][-1] > 0


class Spy:
    """Records the model's inputs and final states at every step."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch):
        self.seen: list[tuple[Tensor, State | None, Tensor | None]] = []
        self.ended: list[State] = []
        forward = LanguageModel.forward

        def spied(model: LanguageModel, tokens: Tensor, state: Any = None, resets: Any = None) -> Any:
            logits, ended = forward(model, tokens, state, resets)
            self.seen.append((tokens, state, resets))
            self.ended.append(ended.detach())
            return logits, ended

        monkeypatch.setattr(LanguageModel, "forward", spied)


POLICIES: dict[str, dict[str, Any]] = {
    "zero": {"policy": "zero"},
    "random_noise": {"policy": "random_noise", "sigma": 0.1},
    "fitted_noise": {"policy": "fitted_noise"},
    "state_passing": {"policy": "state_passing", "p_zero": 0.0},
}


def test_arms_of_one_seed_read_the_same_batches_and_start_from_the_same_weights(
    store: TokenStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    base = run_spec(store.spec, budget={"steps": 5})
    train(base, store, tmp_path / "base", CPU)
    batches, first_losses = {}, {}
    for name, policy in POLICIES.items():
        with monkeypatch.context() as patch:
            spy = Spy(patch)
            arm = run_spec(store.spec, parent=base, initial_state=policy, budget={"steps": 5})
            train(arm, store, tmp_path / name, CPU, parent=tmp_path / "base")
        batches[name] = torch.stack([tokens for tokens, _, _ in spy.seen])
        first_losses[name] = read_table(tmp_path / name / "metrics.parquet", METRICS)["loss"][0]
        assert (spy.seen[1][1] is None) == (name == "zero")
    for name in POLICIES:
        assert torch.equal(batches[name], batches["zero"])
        assert first_losses[name] == first_losses["zero"]  # the first batch starts from zero in every arm


def test_every_stage_has_its_own_data_order(store: TokenStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    spy, run, parent = Spy(monkeypatch), None, None
    for stage in range(3):
        run = run_spec(store.spec, parent=run, budget={"steps": 2})
        train(run, store, tmp_path / str(stage), CPU, parent=parent)
        parent = tmp_path / str(stage)
    read = torch.stack([tokens for tokens, _, _ in spy.seen]).unflatten(0, (3, 2))  # (stage, step, B, T)
    assert not any(torch.equal(a, b) for a, b in combinations(read, 2))


def test_state_passing_starts_where_the_last_batch_ended(
    store: TokenStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    spy = Spy(monkeypatch)
    run = run_spec(store.spec, initial_state={"policy": "state_passing", "p_zero": 0.0}, budget={"steps": 6})
    train(run, store, tmp_path, CPU)
    for (_, started, _), ended in zip(spy.seen[1:], spy.ended[:-1], strict=True):
        assert started is not None
        assert same(started.tensors(), ended.tensors())
        assert not any(tensor.requires_grad for tensor in started.tensors().values())


def test_tbtt_continues_each_stream_and_resets_at_documents(
    store: TokenStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    spy = Spy(monkeypatch)
    run = run_spec(store.spec, initial_state={"policy": "tbtt", "reset_at_documents": True}, budget={"steps": 40})
    train(run, store, tmp_path, CPU)
    streams = torch.cat([tokens for tokens, _, _ in spy.seen], 1)  # (B, steps * T)
    resets = torch.cat([resets for _, _, resets in spy.seen if resets is not None], 1)
    assert resets.any()
    size = store.train.n_tokens
    corpus, marks = torch.from_numpy(store.train.read(0, size)), store.train.document_starts(0, size)
    windows = torch.cat([corpus, corpus]).unfold(0, streams.shape[1], 1)
    for stream, reset in zip(streams, resets, strict=True):
        start = int((windows == stream).all(1).nonzero()[0])  # fails unless it is a contiguous part of the text
        assert reset.tolist() == [bool(marks[(start + i) % size]) for i in range(len(stream))]


def test_without_document_resets_the_model_gets_none(
    store: TokenStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    spy = Spy(monkeypatch)
    run = run_spec(store.spec, initial_state={"policy": "tbtt"}, budget={"steps": 3})
    train(run, store, tmp_path, CPU)
    assert [resets for _, _, resets in spy.seen] == [None] * 3


def test_the_control_of_tbtt_reads_the_same_chunks_without_a_state(
    store: TokenStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The order is independent of the states: the zero state can have the order of TBTT or of the other arms."""
    seen = {}
    for name, state in (
        ("tbtt", {"policy": "tbtt"}),
        ("stream", {"policy": "zero", "order": "stream"}),
        ("shuffled", {"policy": "zero"}),
    ):
        with monkeypatch.context() as patch:
            spy = Spy(patch)
            train(run_spec(store.spec, initial_state=state, budget={"steps": 5}), store, tmp_path / name, CPU)
        seen[name] = torch.stack([tokens for tokens, _, _ in spy.seen])
        if name != "tbtt":
            assert [(state, resets) for _, state, resets in spy.seen] == [(None, None)] * 5
    assert torch.equal(seen["stream"], seen["tbtt"])
    assert not torch.equal(seen["stream"], seen["shuffled"])


def train_diverging(
    run: RunSpec, store: TokenStore, folder: Path, interval: int, at: int, first: int = 1
) -> dict[str, Any]:
    """Train from step `first`. The loss of step `at` is NaN."""
    real, calls = training_step.loss_of, iter(range(first, 100))

    def breaking(*args: Any) -> Any:
        part = real(*args)
        return training_step.MicroBatchResult(part.loss * math.nan, part.ended) if next(calls) == at else part

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(training_step, "loss_of", breaking)
        return train(run, store, folder, CPU, checkpoints=CheckpointSchedule(steps=interval))


def test_divergence_is_a_result_and_keeps_the_last_good_weights(store: TokenStore, tmp_path: Path) -> None:
    run = run_spec(store.spec, budget={"steps": 30})
    train(run, store, tmp_path / "good", CPU, checkpoints=CheckpointSchedule(steps=10))
    record = train_diverging(run, store, tmp_path / "bad", 10, at=25)
    assert record["status"] == "diverged"
    assert "loss is nan at step 25" in record["message"]
    assert "the weights are those of step 10" in record["message"]  # step 20 is less than PATIENCE steps old
    assert record["diverged"] == record["message"]
    model, _ = load_model(tmp_path / "bad" / "model.safetensors")
    assert all(parameter.isfinite().all() for parameter in model.parameters())
    metrics = read_table(tmp_path / "bad" / "metrics.parquet", METRICS)
    assert metrics["step"].max() == 25
    before = read_table(tmp_path / "good" / "metrics.parquet", METRICS).filter(pl.col("step") < 25)
    assert metrics.filter(pl.col("step") < 25).equals(before)


def test_one_high_loss_is_no_divergence() -> None:
    metrics, guess = Metrics(256, SINGLE_PROCESS, answers=False), math.log(256)
    reasons = []
    for step, loss in enumerate([guess] * PATIENCE + [10 * guess] * 2, 1):  # means of 1.9 and 2.8 guesses at the end
        metrics.add(step=step, loss=loss, grad_norm=1.0)
        reasons.append(metrics.flush())
    assert reasons[:-1] == [None] * (PATIENCE + 1)
    assert str(reasons[-1]).endswith(f"at step {PATIENCE + 2}, above 2 log V")


def test_an_infinite_gradient_of_a_finite_loss_is_divergence(
    store: TokenStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = training_step.loss_of

    def breaks(*args: Any) -> Any:
        part = real(*args)
        part.loss.register_hook(lambda gradient: gradient * math.inf)
        return part

    monkeypatch.setattr(training_step, "loss_of", breaks)
    record = train(run_spec(store.spec, budget={"steps": 1}), store, tmp_path, CPU)
    assert record["status"] == "diverged"
    assert "grad_norm is" in record["message"]


def test_the_files_of_a_diverged_run_do_not_depend_on_checkpoints_and_kills(store: TokenStore, tmp_path: Path) -> None:
    run = run_spec(store.spec, budget={"steps": 60}, snapshots=[0.1, 0.9])
    for interval in (7, 1000):
        assert train_diverging(run, store, tmp_path / f"every{interval}", interval, at=45)["steps"] == 45
    resumed = tmp_path / "every7"  # as if killed after its last checkpoint, at step 42
    (resumed / "run.json").unlink()
    (resumed / "model.safetensors").unlink()
    train_diverging(run, store, resumed, 7, at=45, first=43)
    for name in ("model.safetensors", "snapshots/at0.1.safetensors", "snapshots/at0.9.safetensors"):
        assert same(load_tensors(resumed / name)[0], load_tensors(tmp_path / "every1000" / name)[0])
    assert load_tensors(resumed / "model.safetensors")[1]["step"] == 30
    assert load_tensors(resumed / "snapshots/at0.1.safetensors")[1]["step"] == 6


def test_a_resumed_run_that_diverges_earlier_than_it_was_killed_returns_to_its_start(
    store: TokenStore, tmp_path: Path
) -> None:
    run = run_spec(store.spec, budget={"steps": 60})
    train_diverging(run, store, tmp_path, 35, at=45)  # keeps the weights of steps 30 and 40
    (tmp_path / "run.json").unlink()  # as if killed at step 45
    (tmp_path / "model.safetensors").unlink()
    record = train_diverging(run, store, tmp_path, 35, at=37, first=36)
    assert record["message"] == "diverged: loss is nan at step 37; the weights are those of step 0"


def test_files_of_a_finished_run_are_made_again_without_training(
    store: TokenStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Snakemake deletes the outputs of a job before it starts it again."""
    run = run_spec(store.spec, initial_state={"policy": "state_passing"}, budget={"steps": 4})
    train(run, store, tmp_path, CPU)
    before, metrics = weights(tmp_path), read_table(tmp_path / "metrics.parquet", METRICS)
    for name in ("run.json", "metrics.parquet", "model.safetensors"):
        (tmp_path / name).unlink()
    kept, _ = load_tensors(tmp_path / "checkpoint.safetensors")
    assert all(name.startswith("model/") for name in kept), "no optimizer and no states: no step needs them any more"
    monkeypatch.setattr(training_step.Stepper, "train_step", lambda *_: pytest.fail("a step was trained"))
    assert train(run, store, tmp_path, CPU)["steps"] == 4
    assert same(before, weights(tmp_path))
    assert read_table(tmp_path / "metrics.parquet", METRICS).equals(metrics)


def test_a_high_learning_rate_diverges_and_children_record_it(store: TokenStore, tmp_path: Path) -> None:
    base = run_spec(store.spec, lr_scale=3000.0, schedule="constant", warmup=0.0, budget={"steps": 100})
    diverged = train(base, store, tmp_path / "base", CPU)
    assert diverged["status"] == "diverged"
    assert diverged["steps"] < 100
    assert "the weights are those of step 0" in diverged["message"]
    child = run_spec(store.spec, parent=base, budget={"steps": 2}, lr_scale=0.1)
    record = train(child, store, tmp_path / "child", CPU, parent=tmp_path / "base")
    assert record["status"] == "finished"
    assert record["diverged"].startswith("its parent diverged: ")


def test_a_changed_text_or_parent_restarts_the_run(
    store: TokenStore, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The same spec with another text: the old checkpoint is not used."""
    run = run_spec(store.spec, budget={"steps": 4})
    train(run, store, tmp_path / "run", CPU)
    before = weights(tmp_path / "run")
    changed = dataclasses.replace(store, manifest=store.manifest | {"corpus": {"sha256": "other"}})
    assert train(run, changed, tmp_path / "run", CPU)["steps"] == 4
    assert "training starts again from step 1" in capsys.readouterr().err
    assert same(before, weights(tmp_path / "run"))  # here the tokens themselves are the same
    child = run_spec(store.spec, parent=run, budget={"steps": 2})
    train(child, store, tmp_path / "child", CPU, parent=tmp_path / "run")
    train(run, store, tmp_path / "run", CPU)
    capsys.readouterr()
    train(child, store, tmp_path / "child", CPU, parent=tmp_path / "run")
    assert "training starts again from step 1" in capsys.readouterr().err


def test_another_tokenizer_file_restarts_the_run(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The spec names its path, so it stays the same, and so do the documents."""
    from tokenizers import Tokenizer, models, pre_tokenizers

    path = tmp_path / "tokenizer.json"

    def store_with(order: int) -> TokenStore:
        letters = sorted({*" abcdefghijklmnopqrstuvwxyz"}, reverse=order < 0)
        tokenizer = Tokenizer(models.WordLevel(dict(zip(letters, range(len(letters)), strict=True)), unk_token=" "))
        tokenizer.pre_tokenizer = pre_tokenizers.Split("", "isolated")
        tokenizer.save(str(path))
        shutil.rmtree(tmp_path / "texts", ignore_errors=True)
        shutil.rmtree(tmp_path / "tokens", ignore_errors=True)
        return make_store(tmp_path, tokenizer={"kind": "file", "path": str(path), "vocab_size": 32})

    store = store_with(1)
    run = run_spec(store.spec, budget={"steps": 4})
    train(run, store, tmp_path / "run", CPU)
    train(run, store, tmp_path / "run", CPU)
    assert "training starts again" not in capsys.readouterr().err
    changed = store_with(-1)
    assert changed.spec == store.spec
    assert changed.manifest["corpus"] == store.manifest["corpus"]
    train(run, changed, tmp_path / "run", CPU)
    assert "training starts again from step 1" in capsys.readouterr().err
    train(run, changed, tmp_path / "fresh", CPU)
    assert same(weights(tmp_path / "run"), weights(tmp_path / "fresh"))


def test_a_parent_that_the_run_does_not_have_is_refused(store: TokenStore, tmp_path: Path) -> None:
    """Its origin and its divergence would be those of the run."""
    run = run_spec(store.spec, budget={"steps": 1})
    train(run, store, tmp_path / "other", CPU)
    with pytest.raises(CheckpointError, match="this run starts from no other run; leave --parent out"):
        train(run, store, tmp_path / "run", CPU, parent=tmp_path / "other")


def test_no_other_run_or_model_is_overwritten(store: TokenStore, tmp_path: Path) -> None:
    run = run_spec(store.spec, budget={"steps": 1})
    train(run, store, tmp_path / "other", CPU)
    (tmp_path / "other" / "checkpoint.safetensors").unlink()  # to save space: the run is finished
    foreign = tmp_path / "foreign"
    foreign.mkdir()
    save_file({"weight": torch.ones(3)}, foreign / "model.safetensors")
    configured = tmp_path / "configured"
    configured.mkdir()
    (configured / "config.json").write_text("{}")
    thesis = tmp_path / "thesis"
    (thesis / "drafts").mkdir(parents=True)
    (thesis / "drafts" / ".chapter.tmp").write_text("Mine.")
    later = run_spec(store.spec, budget={"steps": 2})
    for folder, says in (
        (tmp_path / "other", "other: holds another run; give another --out, or delete it"),
        (foreign, "was not written by ssm .*; give another --out"),
        (configured, "configured: holds a model that was not written by ssm; give another --out"),
        (thesis, "thesis: holds temporary files that belong to no run; give another --out"),
        (tmp_path, f"holds the folders of runs; give --out {tmp_path / later.id}"),
    ):
        before = {file: file.read_bytes() for file in folder.rglob("*") if file.is_file()}
        with pytest.raises(CheckpointError, match=says):
            train(later, store, folder, CPU)
        assert {file: file.read_bytes() for file in folder.rglob("*") if file.is_file()} == before
    (tmp_path / "other" / "run.json").unlink()
    with pytest.raises(CheckpointError, match="holds another run"):
        train(later, store, tmp_path / "other", CPU)
    assert train(run, store, tmp_path / "other", CPU)["steps"] == 1, "the run itself"


def test_two_processes_do_not_train_in_one_folder(store: TokenStore, tmp_path: Path) -> None:
    (tmp_path / "run").mkdir()
    lock = tmp_path / "run" / ".lock"
    with folder_lock(lock.parent), lock.open("w") as second, pytest.raises(BlockingIOError):
        fcntl.flock(second, fcntl.LOCK_EX | fcntl.LOCK_NB)
    train(run_spec(store.spec, budget={"steps": 1}), store, tmp_path / "run", CPU)  # released


def test_a_disk_without_locks_can_be_used(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Some shared disks have no locks. Other errors are raised."""

    def refusing(number: int) -> Callable[..., None]:
        def flock(*_: Any) -> None:
            raise OSError(number, "refused")

        return flock

    monkeypatch.setattr(fcntl, "flock", refusing(errno.ENOSYS))
    with folder_lock(tmp_path):
        pass
    monkeypatch.setattr(fcntl, "flock", refusing(errno.EIO))
    with pytest.raises(OSError, match="refused"), folder_lock(tmp_path):
        pass


def test_activation_checkpointing_changes_no_bit(store: TokenStore, tmp_path: Path) -> None:
    policy = {"policy": "state_passing", "p_zero": 0.1}
    for name, on in (("kept", False), ("recomputed", True)):
        run = run_spec(store.spec, activation_checkpointing=on, initial_state=policy, budget={"steps": 10})
        train(run, store, tmp_path / name, CPU)
    assert same(weights(tmp_path / "kept"), weights(tmp_path / "recomputed"))


def test_wrong_parents_tokens_and_folders_are_refused(store: TokenStore, tmp_path: Path) -> None:
    base = run_spec(store.spec, budget={"steps": 2})
    other = run_spec(store.spec, seed=9, budget={"steps": 2})
    child = run_spec(store.spec, parent=base, budget={"steps": 2})
    train(other, store, tmp_path / "other", CPU)
    with pytest.raises(CheckpointError, match="give its folder as --parent"):
        train(child, store, tmp_path / "child", CPU)
    with pytest.raises(CheckpointError, match=f"holds the run '{other.id}', expected '{base.id}'"):
        train(child, store, tmp_path / "child", CPU, parent=tmp_path / "other")
    with pytest.raises(CheckpointError, match="no such checkpoint"):
        train(child, store, tmp_path / "child", CPU, parent=tmp_path / "nowhere")
    with pytest.raises(CheckpointError, match="holds another run"):
        train(base, store, tmp_path / "other", CPU)
    elsewhere = store.spec.model_copy(update={"name": "elsewhere"})
    with pytest.raises(DataError, match="the run needs 'elsewhere"):
        train(run_spec(elsewhere), store, tmp_path / "x", CPU)


def test_a_finished_run_does_not_read_its_parents_weights_again(
    store: TokenStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    base, other = (run_spec(store.spec, seed=seed, budget={"steps": 1}) for seed in (3, 4))
    child = run_spec(store.spec, parent=base, budget={"steps": 1})
    train(base, store, tmp_path / "base", CPU)
    train(other, store, tmp_path / "other", CPU)
    record = train(child, store, tmp_path / "child", CPU, tmp_path / "base")
    monkeypatch.setattr(lineage, "load_model", lambda path: pytest.fail(f"reads {path}"))
    assert train(child, store, tmp_path / "child", CPU, tmp_path / "base") == record
    with pytest.raises(CheckpointError, match=f"holds the run '{other.id}', expected '{base.id}'"):
        train(child, store, tmp_path / "child", CPU, tmp_path / "other")


def test_bfloat16_autocast_trains(store: TokenStore, tmp_path: Path) -> None:
    run = run_spec(store.spec, precision="bfloat16", initial_state={"policy": "state_passing"}, budget={"steps": 40})
    assert train(run, store, tmp_path, CPU)["status"] == "finished"
    losses = read_table(tmp_path / "metrics.parquet", METRICS)["loss"]
    assert losses[:5].mean() > losses[-5:].mean() + 0.3


def test_a_chinchilla_budget_counts_the_parameters(store: TokenStore, tmp_path: Path) -> None:
    record = train(run_spec(store.spec, budget={"chinchilla": 0.02}), store, tmp_path, CPU)
    assert record["steps"] == round(0.02 * 20 * record["parameters"] / 64)


def test_the_data_order_belongs_to_the_policy(store: TokenStore) -> None:
    """Content and id mention the order only if the policy has a choice, so that older ids stay."""
    shuffled, stream, tbtt = (
        run_spec(store.spec, initial_state=state)
        for state in ({"policy": "zero"}, {"policy": "zero", "order": "stream"}, {"policy": "tbtt"})
    )
    assert shuffled.content()["training"]["initial_state"] == {"policy": "zero"}
    assert stream.content()["training"]["initial_state"] == {"policy": "zero", "order": "stream"}
    assert "order" not in tbtt.content()["training"]["initial_state"]
    assert [run.training.initial_state.order for run in (shuffled, stream, tbtt)] == ["shuffled", "stream", "stream"]
    assert shuffled.id != stream.id
    child = run_spec(store.spec, parent=shuffled, initial_state={"policy": "zero", "order": "stream"})
    assert "_control-stream_" in child.id
    for state in ({"policy": "tbtt", "order": "shuffled"}, {"policy": "state_passing", "order": "stream"}):
        with pytest.raises(ConfigError, match=r"initial_state\.order: unknown name"):
            run_spec(store.spec, initial_state=state)


def test_a_child_must_have_its_parents_model(store: TokenStore) -> None:
    base = run_spec(store.spec)
    with pytest.raises(ValueError, match="differs from its parent's"):
        RunSpec(model=model_spec(d_model=32), data=store.spec, training=base.training, seed=1, parent=base)
