"""Training on tasks: the loss is over the targets of answers alone, for any micro-batches, policies and parents."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from small import make_task, model_spec, run_spec
from torch import Tensor
from torch.nn import functional as F
from training.processes import run_team

from ssm.base.errors import ConfigError
from ssm.base.tables import METRICS, read_table
from ssm.data.batches import IGNORE_INDEX, Batch
from ssm.data.store import TokenStore
from ssm.models.backbone import LanguageModel, build_model
from ssm.models.weights_file import load_tensors
from ssm.specs.training import RunSpec
from ssm.training.checkpoint_schedule import CheckpointSchedule
from ssm.training.distributed import SINGLE_PROCESS, ProcessGroup
from ssm.training.gradients import FlatGradients, Gradients
from ssm.training.job import Machine
from ssm.training.loop import train
from ssm.training.metrics import Metrics
from ssm.training.step import loss_of

CPU = torch.device("cpu")
POLICIES: dict[str, dict[str, Any]] = {
    "zero": {"policy": "zero"},
    "state_passing": {"policy": "state_passing", "p_zero": 0.2},
    "fitted_noise": {"policy": "fitted_noise"},
    "random_noise": {"policy": "random_noise", "sigma": 0.1},
    "tbtt": {"policy": "tbtt"},
}
# Examples differ by 4 times in the number of targets that count.
UNEVEN = [{"shortest": 1, "longest": 3}, {"shortest": 12, "longest": 13}]


@pytest.fixture(scope="module")
def copies(tmp_path_factory: pytest.TempPathFactory) -> TokenStore:
    return make_task(tmp_path_factory.mktemp("copies") / "tokens", task="copy", alphabet=6, mix=UNEVEN)


def task_run(store: TokenStore, **changes: Any) -> RunSpec:
    recipe = {"context": 32, "batch_tokens": 256, "budget": {"steps": 12}} | changes
    return run_spec(store.spec, **recipe)


class Recorder:
    """Keeps the unclipped gradient of every step, averaged over the group."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch):
        self.gradients: list[Tensor] = []
        for kind in (Gradients, FlatGradients):
            monkeypatch.setattr(kind, "clip", self._recording(kind.clip))

    def _recording(self, clip: Any) -> Any:
        def recording(gradients: Gradients, norm: float) -> Tensor:
            total = clip(gradients, 1e9)  # sums over processes, and scales by almost 1
            self.gradients.append(torch.cat([p.grad.flatten().clone() for p in gradients.parameters]))
            return total

        return recording


def by_hand(run: RunSpec, batch: Batch) -> tuple[float, Tensor, float]:
    """Loss, gradient and accuracy of a new model: sums over the targets that count, divided by their number."""
    model = build_model(run.model, run.data.vocab_size, run.seed)
    logits, _ = model(batch.inputs)
    total, right, count = torch.zeros(()), 0, 0
    for row in range(len(batch.inputs)):
        for place in range(batch.inputs.shape[1]):
            target = int(batch.targets[row, place])
            if target != IGNORE_INDEX:
                total = total - F.log_softmax(logits[row, place], -1)[target]
                right, count = right + int(logits[row, place].argmax() == target), count + 1
    loss = total / count
    loss.backward()
    return loss.item(), torch.cat([p.grad.flatten() for p in model.parameters()]), right / count


@pytest.mark.parametrize("micro_batch_tokens", [None, 128, 64, 32])
@pytest.mark.parametrize("flat", [True, False])
def test_the_gradient_is_that_of_the_global_batch(
    micro_batch_tokens: int | None,
    flat: bool,
    copies: TokenStore,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    run = task_run(copies, micro_batch_tokens=micro_batch_tokens, budget={"steps": 1})
    recorder, seen = Recorder(monkeypatch), []
    monkeypatch.setattr("ssm.training.gradients.fits_flat_buffer", lambda model: flat)
    forward = LanguageModel.forward

    def spied(model: LanguageModel, tokens: Tensor, *rest: Any) -> Any:
        seen.append(len(tokens))
        return forward(model, tokens, *rest)

    monkeypatch.setattr(LanguageModel, "forward", spied)
    train(run, copies, tmp_path / "run", CPU)
    assert (
        seen == [256 // 32] if micro_batch_tokens is None else [micro_batch_tokens // 32] * (256 // micro_batch_tokens)
    )
    loss, gradient, accuracy = by_hand(run, first_batch(run, copies))
    assert float((recorder.gradients[0] - gradient).norm() / gradient.norm()) < 1e-6
    metrics = read_table(tmp_path / "run" / "metrics.parquet", METRICS)
    assert metrics["loss"][0] == pytest.approx(loss, rel=1e-6)
    assert metrics["accuracy"][0] == pytest.approx(accuracy, rel=1e-6)
    assert metrics["grad_norm"][0] == pytest.approx(float(gradient.norm()), rel=1e-6)


def first_batch(run: RunSpec, store: TokenStore) -> Batch:
    """The batch of step 1."""
    from ssm.base.seeds import derived_seed
    from ssm.data.training_batches import training_batches

    order = derived_seed(run.seed, "order", run.stage)
    batch = training_batches(store, run.training.context, run.training.batch_size, False, order).batch(0)
    counts = (batch.targets != IGNORE_INDEX).sum(1)
    assert counts.max() >= 3 * counts.min(), "otherwise a mean of means would also pass"
    return batch


def test_a_micro_batch_without_asked_targets_has_no_effect(copies: TokenStore) -> None:
    model = build_model(model_spec(), 10, 1)
    tokens = torch.zeros(2, 32, dtype=torch.int64)
    batch = Batch(tokens, torch.full_like(tokens, IGNORE_INDEX), answers=True)
    part = loss_of(model, batch, None, task_run(copies).training, CPU)
    part.loss.backward()
    assert float(part.loss.detach()) == batch.target_count == int(part.right) == 0
    assert all(p.grad is None or not p.grad.any() for p in model.parameters())


def _train(group: ProcessGroup, run: RunSpec, tokens: Path, folder: Path) -> None:
    train(run, TokenStore.open(tokens), folder, CPU, None, CheckpointSchedule(steps=5), Machine(group))


@pytest.mark.parametrize("policy", ["zero", pytest.param("fitted_noise", marks=pytest.mark.exhaustive)])
def test_two_processes_train_the_same_run_as_one(policy: str, copies: TokenStore, tmp_path: Path) -> None:
    """Their halves of a batch have different numbers of counted targets. The norm shows whether these are weighted."""
    run = task_run(copies, initial_state=POLICIES[policy], micro_batch_tokens=64, clip_norm=0.05)
    _train(SINGLE_PROCESS, run, copies.folder, tmp_path / "1")
    assert run_team(2, _train, run, copies.folder, tmp_path / "2") == [0, 0]
    one, two = (read_table(tmp_path / name / "metrics.parquet", METRICS) for name in "12")
    for column, tolerance in (("loss", 1e-5), ("accuracy", 1e-5), ("grad_norm", 1e-3), ("state_norm", 1e-4)):
        np.testing.assert_allclose(two[column], one[column], rtol=tolerance, err_msg=column)


@pytest.mark.parametrize(
    "policy",
    [
        pytest.param(name, marks=pytest.mark.exhaustive if name in ("fitted_noise", "random_noise", "tbtt") else ())
        for name in POLICIES
    ],
)
def test_every_policy_trains_on_tasks_and_resumes_bitwise(
    policy: str, copies: TokenStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = task_run(copies, initial_state=POLICIES[policy], budget={"steps": 24})
    train(run, copies, tmp_path / "whole", CPU)
    metrics = read_table(tmp_path / "whole" / "metrics.parquet", METRICS)
    assert metrics["accuracy"].is_between(0, 1).all()
    assert (metrics["state_norm"][1:] > 0).all() == (policy != "zero")
    with monkeypatch.context() as patch:
        patch.setattr(Metrics, "add", _killed_at(15, Metrics.add))
        with pytest.raises(KeyboardInterrupt):
            train(run, copies, tmp_path / "again", CPU, checkpoints=CheckpointSchedule(steps=6))
    train(run, copies, tmp_path / "again", CPU)
    one, other = (load_tensors(tmp_path / name / "model.safetensors")[0] for name in ("whole", "again"))
    assert all(torch.equal(one[name], other[name]) for name in one)
    assert read_table(tmp_path / "again" / "metrics.parquet", METRICS).equals(metrics)


def _killed_at(step: int, add: Any) -> Any:
    def adding(metrics: Metrics, **row: Any) -> None:
        if row["step"] == step:
            raise KeyboardInterrupt
        add(metrics, **row)

    return adding


def test_a_task_is_learned(tmp_path: Path) -> None:
    """The task copies one of four letters. Half of the targets that count are the full stop."""
    store = make_task(tmp_path / "tokens", task="copy", alphabet=4, mix=[{"shortest": 1, "longest": 1}])
    run = run_spec(store.spec, context=8, batch_tokens=256, budget={"steps": 80})
    record = train(run, store, tmp_path / "run", CPU)
    metrics = read_table(tmp_path / "run" / "metrics.parquet", METRICS)
    assert record["status"] == "finished"
    assert metrics["accuracy"][-5:].mean() > 0.95
    assert metrics["accuracy"][0] < 0.6


def test_metrics_of_texts_have_no_accuracy(store: TokenStore, tmp_path: Path) -> None:
    train(run_spec(store.spec, budget={"steps": 2}), store, tmp_path / "run", CPU)
    assert "accuracy" not in read_table(tmp_path / "run" / "metrics.parquet", METRICS).columns


def test_divergence_counts_only_asked_targets(copies: TokenStore, tmp_path: Path) -> None:
    """A loss over all targets, 0 for those that do not count, would stay below 2 log V for long."""
    run = task_run(copies, lr_scale=3000.0, schedule="constant", warmup=0.0, budget={"steps": 60}, clip_norm=1e9)
    record = train(run, copies, tmp_path / "run", CPU)
    assert record["status"] == "diverged"


def test_runs_on_tasks_and_texts_can_continue_each_other(store: TokenStore, tmp_path: Path) -> None:
    passkeys = make_task(tmp_path / "tokens", task="passkey", mix=[{"length": 260}])
    text = run_spec(store.spec, budget={"steps": 2})
    train(text, store, tmp_path / "text", CPU)
    fine = run_spec(passkeys.spec, parent=text, context=260, batch_tokens=520, budget={"steps": 2})
    record = train(fine, passkeys, tmp_path / "fine", CPU, parent=tmp_path / "text")
    assert record["status"] == "finished"
    back = run_spec(store.spec, parent=fine, budget={"steps": 1})
    assert train(back, store, tmp_path / "back", CPU, parent=tmp_path / "fine")["status"] == "finished"
    assert "_small_" in fine.id
    assert "_small_" not in text.id


def test_what_does_not_fit_is_refused(store: TokenStore, copies: TokenStore) -> None:
    with pytest.raises(ConfigError, match=r"the vocabulary of 'small' \(10\) differs from the parent's \(256\)"):
        RunSpec.parse(task_run(copies).content() | {"parent": run_spec(store.spec).content()}, "test")
    with pytest.raises(ConfigError, match="examples of 'small' need a context of 28, the recipe has 16"):
        RunSpec.parse(
            task_run(copies).content() | {"training": {"context": 16, "batch_tokens": 64, "budget": {"steps": 1}}},
            "test",
        )
