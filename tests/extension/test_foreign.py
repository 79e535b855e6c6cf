"""Extensions of a hybrid that ssm reads through transformers' own forward pass."""

from __future__ import annotations

import json
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
import transformers
from extension.world import CONTEXT, QUICK
from journey.agreement import agrees, differences, text_of
from models.formats import hf
from models.formats.folders import one_shard
from models.formats.round_trip import assert_bitwise, weights
from models.test_foreign import MODELS, made
from small import content, make_store

from ssm.base.errors import CheckpointError, ConfigError, UserError
from ssm.cli.main import main
from ssm.data.store import TokenStore
from ssm.diagnosis import load_diagnosis
from ssm.extension import extend, extension_of
from ssm.extension.export import as_exported, write_exported
from ssm.extension.parent_run import parent_folder, run_of
from ssm.extension.recipe import extended_run
from ssm.models.foreign.kernels import without_kernels
from ssm.models.load import load_any_model
from ssm.models.weights_file import load_model, load_tensors
from ssm.specs.foreign import ForeignSpec
from ssm.specs.training import CheckpointRef, RunSpec
from ssm.training.checkpoint_schedule import CheckpointSchedule
from ssm.training.imported import write_imported
from ssm.training.loop import train
from ssm.training.run_record import read_record
from ssm.training.step import Stepper

pytestmark = pytest.mark.usefixtures("without_plots")
SIZES: dict[str, Any] = {
    "vocab_size": 256, "hidden_size": 32, "pad_token_id": None, "bos_token_id": None, "eos_token_id": None,
    "tie_word_embeddings": True,
}  # fmt: skip

ANYWHERE = CheckpointRef(name="theirs")


def forward(model: Any, tokens: torch.Tensor) -> torch.Tensor:
    """Logits (B, T, V) by transformers' own forward pass, without fla's kernels, which need a GPU."""
    with without_kernels([type(model).__module__]):
        return model(tokens, use_cache=False).logits


def trained(name: str, folder: Path, steps: int, **changes: Any) -> Path:
    """A model of transformers with slow decays, trained on windows of CONTEXT tokens."""
    store = make_store(folder, documents=60, words=900)
    torch.manual_seed(0)
    model_class = getattr(transformers, f"{name}ForCausalLM")
    model = model_class(model_class.config_class(**(MODELS[name][0] | SIZES | changes))).eval()
    with torch.no_grad():
        for key, parameter in model.named_parameters():
            if key.endswith("A_log"):
                parameter.fill_(np.log(0.05))
            if key.endswith("dt_bias"):
                parameter.fill_(np.log(np.expm1(0.1)))
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
    draw, text = np.random.default_rng(0), store.train
    for _ in range(steps):
        starts = draw.integers(0, text.n_tokens - CONTEXT, 32)
        rows = torch.from_numpy(text.rows(starts, CONTEXT + 1).astype(np.int64))  # (B, T + 1)
        logits = forward(model, rows[:, :-1])
        optimizer.zero_grad()
        F.cross_entropy(logits.transpose(1, 2), rows[:, 1:]).backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
    model.save_pretrained(folder / "theirs")
    return folder / "theirs"


@torch.no_grad()
def far_loss(folder: Path, rows: torch.Tensor) -> float:
    """The mean loss on the last quarter of the rows (B, T + 1), by transformers' own forward pass."""
    logits = forward(hf.load(folder), rows[:, :-1])
    losses = F.cross_entropy(logits.transpose(1, 2), rows[:, 1:], reduction="none")
    return losses[:, 3 * losses.shape[1] // 4 :].mean().item()


def check_gain(theirs: Path, out: Path, found: dict[str, Any], length: int) -> None:
    """It is repaired, and transformers confirms it."""
    assert found["outcome"] in ("repaired", "improved"), found["reason"]
    change = found["change"]["paired_ratio"]
    assert change["value"] < 0.9
    assert change["high"] < 1  # the interval allows for a window that was not drawn: it is wide
    text = text_of(out).page.held_out
    rows = torch.from_numpy(text.rows(np.arange(16) * length, length + 1).astype(np.int64))
    assert far_loss(out / "model", rows) < 0.95 * far_loss(theirs, rows)


def check_written(theirs: Path, out: Path, found: dict[str, Any], attention: str) -> None:
    """The trained weights have the parent's form, and the page names the layers that are given a state."""
    assert found["library"] == "transformers"
    written = out / (found["model"] or found["candidate"])
    page = (out / "index.html").read_text()
    assert attention in page
    assert attention in (written / "README.md").read_text()
    assert "it has attention, which is given no state" in page
    before, after = weights(theirs), weights(written)
    assert {name: tensor.dtype for name, tensor in before.items()} == {name: t.dtype for name, t in after.items()}
    assert any(not torch.equal(tensor, after[name]) for name, tensor in before.items())


def check_agreement(theirs: Path, out: Path, found: dict[str, Any]) -> None:
    """transformers finds the losses that chose the weights, and the written weights have ssm's logits."""
    models = [hf.load(folder) for folder in (theirs, out / (found["model"] or found["candidate"]))]
    with torch.no_grad():
        compared = differences(out, *(partial(forward, model) for model in models))
    assert agrees(compared), compared


def test_a_bamba_is_extended(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    theirs, out = trained("Bamba", tmp_path, 100, num_hidden_layers=2, attn_layer_indices=[0]), tmp_path / "out"
    said = ["extend", str(theirs), "--text", str(tmp_path / "texts"), "-o", str(out), "--context", "16"]
    quick = ["--sequences", "64", "--no-passkey", "--device", "cpu", "--in-context-tolerance", "1"]
    assert main([*said, *quick, "--length", "64", "--steps", "10", "--lr", "3e-3"]) == 0
    assert "With transformers:\n  python -c" in capsys.readouterr().out
    found = json.loads((out / "result.json").read_text())
    check_gain(theirs, out, found, 64)
    check_written(theirs, out, found, "all 2 but 0: recurrent and convolution states; the caches of 0 start empty")
    model, run = load_model(out / "work/runs/extended/model.safetensors")
    assert isinstance(run.model, ForeignSpec)
    assert (run.model.recurrent, run.model.caches) == ((1,), (0,))
    assert read_record(out / "work/runs/extended")["parameters"] == model.parameters_count
    drift = load_diagnosis(out / "before").readings.drift
    assert drift is not None
    assert {head.layer for head in drift.top} == {1}  # of the model, not of those that have a state
    assert load_any_model(out / "work/runs/extended").why_not_extend is None


def imported(folder: Path, **settings: Any) -> tuple[RunSpec, TokenStore, Path]:
    """The run that extends an untrained Bamba, its tokens, and the folder of its parent."""
    store = make_store(folder)
    made("Bamba", **SIZES).save_pretrained(folder / "theirs")
    loaded = load_any_model(folder / "theirs")
    parent = run_of(loaded, store.spec, CONTEXT)
    spec = extension_of(loaded, torch.device("cpu"), context=CONTEXT, length=64, **settings)
    return extended_run(spec, parent, store.spec, "x"), store, parent_folder(loaded, parent, folder / "imported")


def test_a_killed_run_ends_bitwise_the_same(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Including the states that micro-batches hand on in their order."""
    settings = {"policy": "tbtt", "steps": 6, "batch_tokens": 4 * CONTEXT, "micro_batch_tokens": 2 * CONTEXT}
    run, store, parent = imported(tmp_path, **settings)
    device, make = torch.device("cpu"), Stepper.train_step
    train(run, store, tmp_path / "whole", device, parent)

    def killed(self: Stepper, step: int, stop: Any) -> Any:
        if step == 5:
            raise KeyboardInterrupt
        return make(self, step, stop)

    monkeypatch.setattr(Stepper, "train_step", killed)
    with pytest.raises(KeyboardInterrupt):
        train(run, store, tmp_path / "killed", device, parent, CheckpointSchedule(steps=2))
    monkeypatch.undo()
    train(run, store, tmp_path / "killed", device, parent)
    one, other = (load_tensors(tmp_path / name / "model.safetensors")[0] for name in ("whole", "killed"))
    started, _ = load_tensors(parent / "model.safetensors")
    assert all(torch.equal(tensor, other[name]) for name, tensor in one.items())
    assert any(not torch.equal(tensor, started[name]) for name, tensor in one.items())
    assert "inner.lm_head.weight" not in one  # tied


def test_a_checkpoint_in_shards_keeps_its_index(tmp_path: Path) -> None:
    """Some checkpoints on the hub look like this. The weights are read again before they are measured."""
    made("Bamba", **SIZES).save_pretrained(tmp_path / "theirs")
    one_shard(tmp_path / "theirs")
    loaded = load_any_model(tmp_path / "theirs")
    taken = as_exported(loaded, loaded.model, tmp_path)
    write_exported(loaded, taken, tmp_path / "home", {})
    before, after = content(tmp_path / "theirs"), content(tmp_path / "home")
    assert {name: data for name, data in before.items() if name.endswith(".json")}.items() <= after.items()
    assert before.keys() == after.keys()
    assert_bitwise(weights(tmp_path / "theirs"), weights(tmp_path / "home"))
    assert_bitwise(loaded.model.state_dict(), load_any_model(tmp_path / "home").model.state_dict())


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"activation_checkpointing": True}, "is a model of transformers, which then takes no initial state"),
        ({"policy": "random_noise", "sigma": 1.0}, "'random_noise' needs a recurrence in every layer; layer 1 of"),
    ],
)
def test_models_of_transformers_that_cannot_be_extended(settings: dict[str, Any], said: str, tmp_path: Path) -> None:
    make_store(tmp_path, documents=60, words=900)
    made("Bamba", **SIZES).save_pretrained(tmp_path / "theirs")
    with pytest.raises(UserError) as caught:
        extend(tmp_path / "theirs", [str(tmp_path / "texts")], tmp_path / "out", **QUICK | settings)
    assert said in str(caught.value)
    assert "\n" not in str(caught.value)
    assert not (tmp_path / "out" / "before").exists()


def test_a_model_that_cannot_be_trained_is_referred_to_a_repair_without_training(tmp_path: Path) -> None:
    make_store(tmp_path, documents=60, words=900)
    made("Jamba", **SIZES).save_pretrained(tmp_path / "theirs")
    with pytest.raises(ConfigError, match=r"; try --policy scale_a, which trains nothing$"):
        extend(tmp_path / "theirs", [str(tmp_path / "texts")], tmp_path / "out", **QUICK)


def test_a_config_cannot_train_a_foreign_model_from_scratch(tmp_path: Path) -> None:
    run, _, _ = imported(tmp_path)
    content = run.content() | {"parent": None}
    with pytest.raises(ConfigError, match=r"model: 'theirs' is a model of transformers; only"):
        RunSpec.parse(content, "x")
    assert RunSpec.parse(run.content(), "x") == run
    parent = run.parent
    assert parent is not None
    other = parent.model_copy(update={"model": parent.model.model_copy(update={"n_layers": 4}), "checkpoint": ANYWHERE})
    with pytest.raises(CheckpointError, match="is not the model 'theirs'"):
        write_imported(load_any_model(tmp_path / "theirs"), other, tmp_path / "other")
    with pytest.raises(ConfigError, match="figures cannot use"):
        _ = run.own_model


@pytest.mark.exhaustive
def test_a_scaled_hybrid_differs_only_in_a(tmp_path: Path) -> None:
    theirs, out = trained("NemotronH", tmp_path, 300), tmp_path / "out"
    asked = QUICK | {"policy": "scale_a", "length": 64, "steps": None, "lr": None}
    found = extend(theirs, [str(tmp_path / "texts")], out, **asked)
    assert found["outcome"] in ("repaired", "improved"), found["reason"]
    factors = json.loads((out / "work/repair.json").read_text())["chosen"]
    assert len(factors) == 2
    before, after = weights(theirs), weights(out / "model")
    moved = [key for key, tensor in before.items() if not torch.equal(tensor, after[key])]
    assert [key.rpartition(".")[2] for key in moved] == ["A_log"] * 2
    for key, factor in zip(sorted(moved), factors, strict=True):
        torch.testing.assert_close(after[key].exp(), factor * before[key].exp())
    hf.load(out / "model")


@pytest.mark.exhaustive
@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("FalconH1", "all 3: recurrent and convolution states; the caches of 0, 1, 2 start empty, and positions at 0"),
        ("NemotronH", "all 4 but 1, 2: recurrent and convolution states; the caches of 2 start empty, and positions"),
    ],
)
def test_hybrids_of_transformers_are_extended(name: str, said: str, tmp_path: Path) -> None:
    """With attention beside the recurrence in each layer, and in layers of its own."""
    theirs, out = trained(name, tmp_path, 300), tmp_path / "out"
    found = extend(theirs, [str(tmp_path / "texts")], out, **QUICK | {"control": True})
    check_written(theirs, out, found, said)
    check_agreement(theirs, out, found)
    ends = [load_tensors(out / "work/runs" / arm / "model.safetensors")[0] for arm in ("extended", "control")]
    assert any(not torch.equal(tensor, ends[1][key]) for key, tensor in ends[0].items()), "its states change nothing"
    check_gain(theirs, out, found, QUICK["length"])
    extended, control = (load_diagnosis(out / arm).readings for arm in ("after", "control"))
    assert extended.far.value < control.far.value
