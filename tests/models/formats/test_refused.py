"""A checkpoint that cannot be read or written gives one line of error. The original never changes."""

from __future__ import annotations

import json
import os
import pickle
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from file_limit import file_limit
from models import tiny
from models.formats.folders import as_bin, reconfigure, rewrite, shard
from safetensors.torch import load_file
from small import content, import_checkpoint
from torch import Tensor

from ssm.base.errors import CheckpointError, ConfigError, OutputError
from ssm.models.formats import FORMATS, export_checkpoint
from ssm.specs.model import ModelSpec

# --- refused ----------------------------------------------------------------------------------------------------------


class Code:
    """An object that ends the process when it is unpickled."""

    def __reduce__(self) -> tuple[Callable[[int], object], tuple[int]]:
        return os._exit, (3,)


def pickled(value: Callable[[dict[str, Tensor]], object], **options: bool) -> Callable[[Path], None]:
    """Replace the weights by torch.save of a function of them."""

    def spoil(folder: Path) -> None:
        tensors = load_file(folder / "model.safetensors")
        (folder / "model.safetensors").unlink()
        torch.save(value(tensors), folder / "pytorch_model.bin", **options)

    return spoil


def unlike_torch(folder: Path) -> None:
    (folder / "model.safetensors").unlink()
    (folder / "pytorch_model.bin").write_bytes(pickle.dumps({"weight": 1}))


def cut(name: str) -> Callable[[Path], None]:
    def spoil(folder: Path) -> None:
        if name.endswith(".bin"):
            as_bin(folder)
        (folder / name).write_bytes((folder / name).read_bytes()[:-3000])

    return spoil


def without_a_shard(folder: Path) -> None:
    shard(folder)
    sorted(folder.glob("*-of-*"))[1].unlink()


def wrong_shard(folder: Path) -> None:
    shard(folder)
    files = sorted(folder.glob("*-of-*"))
    shutil.copy(files[0], files[1])


def escaping_shard(folder: Path) -> None:
    shard(folder)
    index = folder / "model.safetensors.index.json"
    listed = json.loads(index.read_text())
    listed["weight_map"] = dict.fromkeys(listed["weight_map"], "../elsewhere.safetensors")
    index.write_text(json.dumps(listed))


def not_a_number(folder: Path) -> None:
    def spoil(tensors: dict[str, Tensor]) -> None:
        tensors["backbone.layers.1.mixer.D"][3] = float("nan")
        tensors["backbone.norm_f.weight"][0] = float("-inf")

    rewrite(folder, spoil)


def quantized(folder: Path) -> None:
    name = "backbone.layers.1.mixer.in_proj.weight"
    rewrite(folder, lambda tensors: tensors.update({name: tensors[name].to(torch.int8)}))


def removed(name: str) -> Callable[[Path], None]:
    return lambda folder: (folder / name).unlink()


def written(name: str, text: str) -> Callable[[Path], None]:
    def spoil(folder: Path) -> None:
        (folder / name).write_text(text)

    return spoil


def configured(**changes: object) -> Callable[[Path], None]:
    return lambda folder: reconfigure(folder, **changes)


LFS = "version https://git-lfs.github.com/spec/v1\noid sha256:4d7a\nsize 12345\n"
REFUSED: dict[str, tuple[Callable[[Path], None], str]] = {
    "no config": (removed("config.json"), "has no config.json, which describes the model"),
    "no weights": (removed("model.safetensors"), "has no weights (model.safetensors or pytorch_model.bin"),
    "no JSON": (written("config.json", "{"), "config.json: not a readable JSON file"),
    "no object": (written("config.json", "[]"), "config.json: is not a JSON object"),
    "near": (configured(model_type="mamba1"), "unknown architecture 'mamba1'; did you mean 'mamba'?"),
    "Mamba-3": (
        configured(model_type="mamba3"),
        "ssm cannot read Mamba-3: its files do not say which function computes A",
    ),
    "far": (
        configured(model_type="llama"),
        "unknown architecture 'llama'; valid names: delta_net, falcon_mamba, gated_deltanet, gla,",
    ),
    "nameless": (configured(model_type="absent"), "config.json: has neither a model_type (delta_net, falcon_mamba, "),
    "biased": (configured(use_bias=True), "use_bias is True; ssm supports only False for transformers' Mamba"),
    "quantized": (configured(quantization_config={"bits": 4}), "quantization_config is {'bits': 4}"),
    "sizeless": (configured(hidden_size="absent"), "config.json: has no hidden_size"),
    "no vocabulary": (configured(vocab_size=0), "config.json: vocab_size is 0"),
    "odd size": (configured(hidden_size="wide"), "config.json: "),
    "negative": (configured(hidden_size=-32), "config.json: d_model: "),
    "another size": (configured(hidden_size=64), "is (37, 32), expected (37, 64)"),
    "missing shard": (without_a_shard, "shards is missing: model-00002-of-0"),
    "wrong shard": (wrong_shard, "lists tensors that are not in their shards: "),
    "shards elsewhere": (escaping_shard, "lists files outside its folder: ../elsewhere.safetensors"),
    "NaN": (not_a_number, "weights that are not finite: backbone.layers.1.mixer.D, backbone.norm_f.weight"),
    "integers": (quantized, "backbone.layers.1.mixer.in_proj.weight is not float16, bfloat16, float32 or float64"),
    "pointer": (written("model.safetensors", LFS), "model.safetensors: is a Git LFS pointer, not the file itself; run"),
    "cut": (cut("model.safetensors"), "model.safetensors: truncated or corrupted ("),
    "cut bin": (cut("pytorch_model.bin"), "pytorch_model.bin: truncated or corrupted ("),
    "code": (pickled(lambda _: {"weight": Code()}), "which ssm never runs; if you trust it, load it with torch.load"),
    "pickle": (unlike_torch, "pytorch_model.bin: "),
    "module": (pickled(lambda _: torch.nn.Linear(2, 2)), "contains pickled code, which ssm never runs"),
    "old form": (
        pickled(dict, _use_new_zipfile_serialization=False),
        "has torch.save's old format",
    ),
    "nested": (pickled(lambda tensors: {"state_dict": tensors}), "pytorch_model.bin: is not a dictionary of tensors"),
}


@pytest.mark.parametrize(("spoil", "says"), REFUSED.values(), ids=REFUSED)
def test_unreadable_checkpoints(spoil: Callable[[Path], None], says: str, original: Path) -> None:
    spoil(original)
    before = content(original)
    with pytest.raises((CheckpointError, ConfigError)) as error:
        import_checkpoint(original)
    text = str(error.value)
    assert text.startswith(str(original))
    assert says in text
    assert "\n" not in text
    assert content(original) == before


def test_a_lack_of_memory_is_no_damage(original: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def lacking(*_: object, **__: object) -> None:
        raise RuntimeError("unable to mmap 16 bytes from file <x>: Cannot allocate memory (12)")

    pickled(dict)(original)
    monkeypatch.setattr(torch, "load", lacking)
    with pytest.raises(RuntimeError, match="unable to mmap"):
        import_checkpoint(original)


def test_a_missing_folder(tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match=r"nowhere: no such folder or file, and not a name of the hub"):
        import_checkpoint(tmp_path / "nowhere")
    (tmp_path / "mamba").mkdir()
    with pytest.raises(CheckpointError, match=r"/mambba: no such folder or file, .*\); did you mean 'mamba'\?$"):
        import_checkpoint(tmp_path / "mambba")


def test_the_config_is_no_file_of_weights(original: Path) -> None:
    with pytest.raises(CheckpointError, match=r"config\.json: is a JSON file, which holds no weights; give the folder"):
        import_checkpoint(original / "config.json")


def test_a_file_that_is_no_model_is_named(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("a text")
    with pytest.raises(CheckpointError, match=r"notes\.txt: its folder has no config\.json"):
        import_checkpoint(tmp_path / "notes.txt")


def test_the_error_lists_all_wrong_tensors(original: Path) -> None:
    def spoil(tensors: dict[str, Tensor]) -> None:
        del tensors["backbone.layers.2.mixer.D"]
        tensors["backbone.layers.7.mixer.D"] = torch.zeros(64)
        tensors["backbone.norm_f.weight"] = torch.zeros(31)
        name = "backbone.layers.0.mixer.conv1d.weight"
        tensors[name] = tensors[name].squeeze(1).contiguous()

    rewrite(original, spoil)
    with pytest.raises(CheckpointError) as error:
        import_checkpoint(original)
    for problem in (
        "is not a valid model of transformers' Mamba: ",
        "missing backbone.layers.2.mixer.D",
        "unknown backbone.layers.7.mixer.D",
        "backbone.norm_f.weight is (31,), expected (32,)",
        "backbone.layers.0.mixer.conv1d.weight is (64, 4), expected (64, 1, 4)",
    ):
        assert problem in str(error.value)
    assert "\n" not in str(error.value)


def test_a_long_list_of_wrong_tensors_is_counted(original: Path) -> None:
    def spoil(tensors: dict[str, Tensor]) -> None:
        for name in [name for name in tensors if ".mixer." in name]:
            tensors[f"old.{name}"] = tensors.pop(name)

    rewrite(original, spoil)
    with pytest.raises(
        CheckpointError, match=r": missing (backbone\.\S+, ){4}backbone\.\S+ and [\d]+ more; unknown "
    ) as error:
        import_checkpoint(original)
    assert str(error.value).count("mixer") == 10


# --- not written ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("container", ["safetensors", "bin"])
def test_a_full_disk(container: str, original: Path, tmp_path: Path) -> None:
    if container == "bin":
        as_bin(original)
    imported = import_checkpoint(original)
    before = content(tmp_path)
    with file_limit(30_000), pytest.raises(OutputError, match=r"out: cannot be written \(.+\)$") as error:
        export_checkpoint(imported.model, imported, tmp_path / "out")
    assert "\n" not in str(error.value)
    assert content(tmp_path) == before
    assert [path.name for path in tmp_path.iterdir()] == ["original"]


def test_existing_folders_are_not_overwritten(original: Path, tmp_path: Path) -> None:
    imported = import_checkpoint(original)
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "notes").write_text("mine")
    before = content(tmp_path)
    for folder, says in (
        (tmp_path / "mine", "already exists"),
        (original, "is inside the original's folder, which is never changed"),
        (original / "inside", "is inside the original's folder, which is never changed"),
    ):
        with pytest.raises(OutputError, match=says):
            export_checkpoint(imported.model, imported, folder)
    assert content(tmp_path) == before
    (tmp_path / "empty").mkdir()
    export_checkpoint(imported.model, imported, tmp_path / "empty")


def test_a_diverged_model_is_not_written(original: Path, tmp_path: Path) -> None:
    imported = import_checkpoint(original)
    with torch.no_grad():
        imported.model.norm.weight[0] = float("nan")
    with pytest.raises(CheckpointError, match=r"out: not written, weights are not finite: norm\.weight$"):
        export_checkpoint(imported.model, imported, tmp_path / "out")
    assert not (tmp_path / "out").exists()


GATED_MLP = {"kind": "gated_mlp", "d_hidden": 24}
CANNOT_DESCRIBE: dict[str, tuple[ModelSpec, str, str]] = {
    "another mixer": (tiny.spec(), "mamba", "cannot be written as transformers' Mamba, which has other layers"),
    "mimetic": (
        tiny.spec(mimetic={"a": 2}), "mamba2",
        "cannot be written as transformers' Mamba-2: layers.0.mimetic.a is 2, there None;",
    ),
    "polarized states": (
        tiny.spec(mixer={"kind": "mamba1", "d_state": 4, "polarize": "one"}), "mamba",
        "cannot be written as transformers' Mamba: layers.0.polarize is 'one', there 'none'",
    ),
    "polarized states, matched": (
        tiny.spec(mixer={"kind": "mamba1", "polarize": "both", "polarized_size": "matched"}), "mamba_ssm",
        "cannot be written as mamba_ssm's models: layers.0.polarize is 'both', there 'none'",
    ),
    "norms": (
        tiny.spec(mixer={"kind": "mamba1", "selection_norm_eps": 1e-6}), "mamba",
        "cannot be written as transformers' Mamba: layers.0.selection_norm_eps is 1e-06, there None",
    ),
    "no norms": (
        tiny.spec(mixer={"kind": "mamba1"}), "falcon_mamba",
        "cannot be written as transformers' Falcon Mamba, which has other layers",
    ),
    "another epsilon": (tiny.spec(norm_eps=1e-3), "mamba2", "layer_norm_epsilon is 0.001"),
    "an ffn": (tiny.spec(ffn={"kind": "mlp", "d_hidden": 8}), "mamba2", "ffn.kind is 'mlp', there None"),
    "a norm": (tiny.spec(norm="layer"), "mamba2", "norm is 'layer', there 'rms'"),
    "a partly rotated head": (
        tiny.spec(mixer={"kind": "attention", "n_heads": 2, "rotary_pct": 0.5}, ffn=GATED_MLP), "mistral",
        "cannot be written as transformers' Mistral: layers.0.rotary_pct is 0.5, there 1.0",
    ),
    "another rank": (
        tiny.spec(mixer={"kind": "kda", "n_heads": 2, "gate_rank": 3}, ffn=GATED_MLP), "fla_kda",
        "tiny: cannot be written as fla's KDA: layers.0.gate_rank is 3, there 8",
    ),
    "no values of the first layer": (
        tiny.spec(mixer={"kind": "rwkv7", "head_dim": 8, "value_rank": None}, norm="layer",
                  ffn={"kind": "rwkv_channel_mix", "d_hidden": 24, "receptance": False}),
        "fla_rwkv7", "cannot be written as fla's RWKV-7, which has other layers (value_rank is None)",
    ),
}  # fmt: skip


@pytest.mark.parametrize(("spec", "key", "says"), CANNOT_DESCRIBE.values(), ids=CANNOT_DESCRIBE)
def test_models_that_a_format_cannot_describe(spec: ModelSpec, key: str, says: str) -> None:
    with pytest.raises(CheckpointError) as error:
        FORMATS[key].config_of(spec, tiny.VOCABULARY)
    assert says in str(error.value)
    assert "\n" not in str(error.value)


def test_an_export_of_another_model_than_was_read(original: Path, tmp_path: Path) -> None:
    imported = import_checkpoint(original)
    with pytest.raises(CheckpointError, match=r"the model is not the model that was read: .*d_model was 32 and is 16"):
        export_checkpoint(tiny.model(), imported, tmp_path / "out")
