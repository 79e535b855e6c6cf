"""Checkpoints: bitwise back, and one clear line for every file that is not one."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from models import tiny
from safetensors.torch import load_file, save_file
from small import save_model
from torch import Tensor

from ssm.base.errors import CheckpointError, ConfigError
from ssm.models.checkpoint import load_model, load_tensors, load_weights, save_tensors
from ssm.specs.data import DataSpec
from ssm.specs.training import Budget, RunSpec, TrainingSpec


def tiny_run() -> RunSpec:
    data = DataSpec.parse({"name": "text", "corpus": {"kind": "files", "paths": ["*.txt"]}}, "test")
    training = TrainingSpec(context=8, batch_tokens=32, budget=Budget(steps=1))
    return RunSpec(model=tiny.spec(tie_embeddings=False), data=data, training=training, seed=3)


@pytest.fixture
def saved(tmp_path: Path) -> Path:
    run = tiny_run()
    model = tiny.eventful(tiny.build_model(run.model, run.data.vocab_size, run.seed))
    save_model(tmp_path / "model.safetensors", model, run, 7, "text")
    return tmp_path / "model.safetensors"


def test_a_model_comes_back_bitwise(saved: Path) -> None:
    run = tiny_run()
    expected = tiny.eventful(tiny.build_model(run.model, run.data.vocab_size, run.seed))
    torch.manual_seed(5)
    model, its_run = load_model(saved)
    assert its_run == run
    assert all(torch.equal(a, b) for a, b in zip(model.parameters(), expected.parameters(), strict=True))
    assert load_tensors(saved)[1]["step"] == 7
    tokens = tiny.tokens(0, 2, 9)
    assert torch.equal(model(tokens)[0], expected(tokens)[0])


def test_tensors_of_every_kind_come_back_bitwise(tmp_path: Path) -> None:
    whole = torch.randn(4, 6)
    tensors = {
        "slice": whole[:, 2:5],
        "half": torch.randn(3).bfloat16(),
        "count": torch.tensor(5),
        "special": torch.tensor([float("nan"), float("inf"), -0.0, 1e-42]),
        "empty": torch.zeros(2, 0, 3),
    }
    save_tensors(tmp_path / "t.safetensors", tensors, {"step": 1})
    back, header = load_tensors(tmp_path / "t.safetensors")
    assert header == {"step": 1}
    assert back.keys() == tensors.keys()
    for name, tensor in tensors.items():
        assert back[name].dtype == tensor.dtype
        assert back[name].equal(tensor) or name == "special"
    assert back["special"].view(torch.int32).equal(tensors["special"].view(torch.int32))


def cut(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-100])


def cut_header(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:20])


def empty(path: Path) -> None:
    path.write_bytes(b"")


def foreign(path: Path) -> None:
    save_file({"weight": torch.zeros(3)}, path)


def pickled(path: Path) -> None:
    torch.save({"weight": torch.zeros(3)}, path)


def headless(path: Path) -> None:
    save_tensors(path, {"weight": torch.zeros(3)}, {"step": 1})


def removed(path: Path) -> None:
    path.unlink()


def a_folder(path: Path) -> None:
    path.unlink()
    path.mkdir()


def garbled(path: Path) -> None:
    save_file({"weight": torch.zeros(3)}, path, metadata={"ssm": "{not json"})


BROKEN: dict[Callable[[Path], None], str] = {
    cut: "truncated or corrupted",
    cut_header: "truncated or corrupted",
    empty: "truncated or corrupted",
    pickled: "truncated or corrupted",
    a_folder: "truncated or corrupted",
    foreign: "was not written by ssm",
    garbled: "truncated or corrupted",
    headless: "its header has no run",
    removed: "no such checkpoint",
}


@pytest.mark.parametrize(("spoil", "says"), BROKEN.items(), ids=[spoil.__name__ for spoil in BROKEN])
def test_a_file_that_is_no_checkpoint(saved: Path, spoil: Callable[[Path], None], says: str) -> None:
    spoil(saved)
    with pytest.raises(CheckpointError) as error:
        load_model(saved)
    text = str(error.value)
    assert text.startswith(f"{saved}: ")
    assert says in text
    assert "\n" not in text


def rewritten(path: Path, change: Callable[[dict[str, Tensor]], None]) -> None:
    tensors, header = load_tensors(path)
    change(tensors)
    save_tensors(path, tensors, header)


def test_wrong_tensors_are_all_named_in_one_line(saved: Path) -> None:
    def spoil(tensors: dict[str, Tensor]) -> None:
        del tensors["layers.1.mixer.D"]
        tensors["layers.9.mixer.D"] = torch.zeros(4)
        tensors["norm.weight"] = torch.zeros(5)
        tensors["layers.0.mixer.A_log"][2] = float("nan")
        tensors["head.weight"][0, 0] = float("inf")

    rewritten(saved, spoil)
    with pytest.raises(CheckpointError) as error:
        load_model(saved)
    text = str(error.value)
    for problem in (
        "missing layers.1.mixer.D",
        "unknown layers.9.mixer.D",
        "norm.weight is (5,), expected (16,)",
        "layers.0.mixer.A_log is not finite",
        "head.weight is not finite",
    ):
        assert problem in text
    assert "\n" not in text


def test_wrong_tensors_change_no_weight() -> None:
    model = tiny.model()
    before = [parameter.clone() for parameter in model.parameters()]
    tensors = {name: tensor + 1 for name, tensor in model.state_dict().items()}
    tensors["norm.weight"] = torch.zeros(5)
    with pytest.raises(CheckpointError):
        load_weights(model, tensors, "here")
    assert all(torch.equal(a, b) for a, b in zip(model.parameters(), before, strict=True))


def test_a_run_that_does_not_parse_is_named(saved: Path) -> None:
    tensors, header = load_tensors(saved)
    header["run"]["model"]["d_modell"] = 3
    save_tensors(saved, tensors, header)
    with pytest.raises(ConfigError, match=r"model\.safetensors: model: unknown key 'd_modell'; did you mean"):
        load_model(saved)


def test_a_failed_write_leaves_the_old_file(saved: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before = saved.read_bytes()

    def break_off(tensors: dict[str, Tensor], path: Path, metadata: dict[str, str]) -> None:
        path.write_bytes(b"half a file")
        raise KeyboardInterrupt

    monkeypatch.setattr("ssm.models.checkpoint.save_file", break_off)
    with pytest.raises(KeyboardInterrupt):
        save_tensors(saved, {}, {})
    assert saved.read_bytes() == before
    assert [path.name for path in saved.parent.iterdir()] == [saved.name]


def test_nothing_but_json_and_tensors_is_inside(saved: Path) -> None:
    """Any safetensors reader sees the weights, and the header is the run's spec."""
    size = int.from_bytes(saved.read_bytes()[:8], "little")
    header = json.loads(saved.read_bytes()[8 : 8 + size])
    assert json.loads(header["__metadata__"]["ssm"])["run"] == tiny_run().content()
    assert set(load_file(saved)) == set(header) - {"__metadata__"}
