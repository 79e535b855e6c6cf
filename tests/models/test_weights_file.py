"""Checkpoints: equal bits after reading, and one line of error for every invalid file."""

from __future__ import annotations

import errno
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
from ssm.models.weights_file import load_model, load_tensors, load_weights, save_tensors
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


def test_round_trip_of_a_model(saved: Path) -> None:
    run = tiny_run()
    expected = tiny.eventful(tiny.build_model(run.model, run.data.vocab_size, run.seed))
    torch.manual_seed(5)
    model, its_run = load_model(saved)
    assert its_run == run
    assert all(torch.equal(a, b) for a, b in zip(model.parameters(), expected.parameters(), strict=True))
    assert load_tensors(saved)[1]["step"] == 7
    tokens = tiny.tokens(0, 2, 9)
    assert torch.equal(model(tokens)[0], expected(tokens)[0])


def test_round_trip_of_tensors(tmp_path: Path) -> None:
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


def replaced_by_a_folder(path: Path) -> None:
    path.unlink()
    path.mkdir()


ONE = {"weight": torch.zeros(3)}
BROKEN: dict[str, tuple[Callable[[Path], object], str]] = {
    "cut": (lambda path: path.write_bytes(path.read_bytes()[:-100]), "truncated or corrupted"),
    "cut in the header": (lambda path: path.write_bytes(path.read_bytes()[:20]), "truncated or corrupted"),
    "empty": (lambda path: path.write_bytes(b""), "truncated or corrupted"),
    "pickled": (lambda path: torch.save(ONE, path), "truncated or corrupted"),
    "folder": (replaced_by_a_folder, "cannot be read (Is a directory)"),
    "header is not JSON": (lambda path: save_file(ONE, path, metadata={"ssm": "{not json"}), "truncated or corrupted"),
    "other program": (lambda path: save_file(ONE, path), "was not written by ssm"),
    "header without a run": (lambda path: save_tensors(path, ONE, {"step": 1}), "its header has no run"),
    "missing": (lambda path: path.unlink(), "no such checkpoint"),
}


@pytest.mark.parametrize(("spoil", "says"), BROKEN.values(), ids=BROKEN)
def test_invalid_files(saved: Path, spoil: Callable[[Path], object], says: str) -> None:
    spoil(saved)
    with pytest.raises(CheckpointError) as error:
        load_model(saved)
    text = str(error.value)
    assert text.startswith(f"{saved}: ")
    assert says in text
    assert "\n" not in text


def test_an_error_of_the_disk_is_no_damage(saved: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def failing(*_: object, **__: object) -> None:
        raise OSError(errno.EIO, "Input/output error")

    monkeypatch.setattr("ssm.models.weights_file.safe_open", failing)
    with pytest.raises(CheckpointError, match=rf"^{saved}: cannot be read \(Input/output error\)$"):
        load_tensors(saved)


def rewritten(path: Path, change: Callable[[dict[str, Tensor]], None]) -> None:
    tensors, header = load_tensors(path)
    change(tensors)
    save_tensors(path, tensors, header)


def test_the_error_lists_all_wrong_tensors(saved: Path) -> None:
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


def test_an_invalid_run(saved: Path) -> None:
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

    monkeypatch.setattr("ssm.models.weights_file.save_file", break_off)
    with pytest.raises(KeyboardInterrupt):
        save_tensors(saved, {}, {})
    assert saved.read_bytes() == before
    assert [path.name for path in saved.parent.iterdir()] == [saved.name]


def test_other_readers_can_open_the_file(saved: Path) -> None:
    """Any safetensors reader finds the weights, and the header has the run's spec as JSON."""
    size = int.from_bytes(saved.read_bytes()[:8], "little")
    header = json.loads(saved.read_bytes()[8 : 8 + size])
    assert json.loads(header["__metadata__"]["ssm"])["run"] == tiny_run().content()
    assert set(load_file(saved)) == set(header) - {"__metadata__"}


def test_a_file_has_the_usual_mode(tmp_path: Path) -> None:
    """safetensors makes files that only their owner can read."""
    save_tensors(tmp_path / "weights.safetensors", {"a": torch.ones(2)}, {})
    (tmp_path / "usual").touch()
    assert (tmp_path / "weights.safetensors").stat().st_mode == (tmp_path / "usual").stat().st_mode
