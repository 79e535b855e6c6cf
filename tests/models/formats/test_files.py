"""Finding checkpoints, shards and dtypes, unused tensors, files next to the weights, and memory of an import."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from models import tiny
from models.formats import hf, qwen, round_trip
from models.formats.folders import as_bin, one_shard, reconfigure, rewrite, shard
from safetensors.torch import load_file, save_file
from small import content, import_checkpoint, write_checkpoint
from torch import Tensor

from ssm.base.errors import CheckpointError
from ssm.models.formats import export_checkpoint, round_as_read
from ssm.models.load import load_any_model
from ssm.specs.model import ModelSpec

# --- found ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("container", "name"), [("safetensors", "mine.safetensors"), ("bin", "mine.pt")])
def test_a_file_with_its_config_beside_it(original: Path, container: str, name: str) -> None:
    """An export of a file with an unusual name has an index."""
    weights = original / "model.safetensors" if container == "safetensors" else as_bin(original)
    weights.rename(original / name)
    imported = import_checkpoint(original / name)
    assert imported.spec.name == "original"
    assert imported.source.files == (original / name,)
    out = export_checkpoint(imported.model, imported, original.parent / "out")
    assert set(content(out)) == {"config.json", "generation_config.json", name, f"{weights.name}.index.json"}
    assert import_checkpoint(out).source.files == (out / name,)


def test_a_name_of_the_hub(original: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It comes from the hub's local cache, without a network."""
    import huggingface_hub

    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_OFFLINE", True)
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_CACHE", str(tmp_path / "cache"))
    cached = tmp_path / "cache" / "models--someone--their-mamba"
    for name, revision in (("main", "a" * 40), ("half", "b" * 40)):
        (cached / "refs").mkdir(parents=True, exist_ok=True)
        (cached / "refs" / name).write_text(revision)
        shutil.copytree(original, cached / "snapshots" / revision)
    as_bin(cached / "snapshots" / ("b" * 40))
    imported = import_checkpoint("someone/their-mamba")
    assert imported.spec.name == "their-mamba"
    assert imported.source.folder.name == "a" * 40
    assert import_checkpoint("someone/their-mamba@half").source.files[0].name == "pytorch_model.bin"
    with pytest.raises(CheckpointError, match=r"^someone/other: no such folder, and the hub does not provide it \("):
        import_checkpoint("someone/other")
    monkeypatch.chdir(cached)
    (cached / "snapshots" / "main").mkdir()
    with pytest.raises(CheckpointError, match=r"^snapshots/maim: no such folder, .*; did you mean 'main'\?$"):
        import_checkpoint("snapshots/maim")
    monkeypatch.setitem(sys.modules, "huggingface_hub", None)
    with pytest.raises(CheckpointError, match=r"need `pip install '\.\[hub\]'` in the clone"):
        import_checkpoint("someone/other")


# --- shards and types -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("shards_are_left", [True, False])
def test_a_single_file_comes_before_an_index_of_earlier_shards(
    original: Path, tmp_path: Path, shards_are_left: bool
) -> None:
    """transformers leaves the index in the folder when it saves again in one file."""
    model = hf.load(original)
    (original / "model.safetensors").unlink()
    model.save_pretrained(original, max_shard_size="40KB")
    shards = {path: path.read_bytes() for path in original.glob("model-*.safetensors")}
    assert len(shards) > 1
    with torch.no_grad():
        next(model.parameters()).mul_(2)
    model.save_pretrained(original)
    for path in shards:
        if shards_are_left:
            path.write_bytes(shards[path])
        assert path.exists() == shards_are_left
    assert (original / "model.safetensors.index.json").exists()
    imported = import_checkpoint(original)
    assert [path.name for path in imported.source.files] == ["model.safetensors"]
    out = export_checkpoint(imported.model, imported, tmp_path / "out")
    for name, tensor in hf.load(original).state_dict().items():
        assert torch.equal(tensor, hf.load(out).state_dict()[name])
    assert not (out / "model.safetensors.index.json").exists()


def test_one_of_several_shards_is_no_model(original: Path) -> None:
    shard(original)
    first, *others = sorted(original.glob("model-*.safetensors"))
    said = f"{first}: is one of {1 + len(others)} shards of a model; give its folder, {original}"
    with pytest.raises(CheckpointError, match=f"^{re.escape(said)}$"):
        import_checkpoint(first)


def test_shards_stay_the_same_shards(original: Path, tmp_path: Path) -> None:
    shard(original)
    imported = import_checkpoint(original)
    assert len(imported.source.files) > 3
    out = export_checkpoint(imported.model, imported, tmp_path / "out")
    one, other = (json.loads((f / "model.safetensors.index.json").read_text()) for f in (original, out))
    assert one["weight_map"] == other["weight_map"]
    assert one["metadata"]["total_size"] == other["metadata"]["total_size"]
    round_trip.assert_bitwise(round_trip.weights(original), round_trip.weights(out))
    hf.load(out)


@pytest.mark.parametrize("container", ["safetensors", "bin"])
def test_one_shard_keeps_its_name_and_an_index(original: Path, tmp_path: Path, container: str) -> None:
    """ssm and transformers can open the export again. Some checkpoints of the hub are like this."""
    if container == "bin":
        as_bin(original)
    one_shard(original)
    imported = import_checkpoint(original)
    import_checkpoint(*imported.source.files)
    out = export_checkpoint(imported.model, imported, tmp_path / "out")
    assert set(content(out)) == set(content(original))
    round_trip.assert_bitwise(round_trip.weights(original), round_trip.weights(out))
    again = load_any_model(out).imported
    assert again is not None
    round_trip.assert_bitwise(imported.model.state_dict(), again.model.state_dict())
    hf.load(out)


def test_every_tensor_keeps_its_own_type(original: Path, tmp_path: Path) -> None:
    """For example, RWKV's files have float32 decays and other weights in float16."""

    def mixed(tensors: dict[str, Tensor]) -> None:
        for name in tensors:
            if not name.endswith("A_log"):
                tensors[name] = tensors[name].half()

    rewrite(original, mixed)
    imported = import_checkpoint(original)
    assert next(imported.model.parameters()).dtype == torch.float16
    assert imported.model.layers[0].mixer.A_log.dtype == torch.float32
    out = export_checkpoint(imported.model.float(), imported, tmp_path / "out")
    round_trip.assert_bitwise(round_trip.weights(original), round_trip.weights(out))


# --- tensors of other versions, and tensors that our models do not use ------------------------------------------------


@pytest.mark.parametrize(
    ("kind", "sizes"),
    [("Qwen3_5", qwen.SIZES), ("Qwen3Next", qwen.SIZES | qwen.EXPERTS)],
    ids=["Qwen3.5", "Qwen3-Next"],
)
def test_heads_for_several_tokens_are_copied(kind: str, sizes: dict[str, Any], tmp_path: Path) -> None:
    """They stay in their own file, with their own dtypes."""
    hf.made(kind, **sizes).save_pretrained(tmp_path / "theirs")
    heads = {"mtp.fc.weight": torch.arange(6.0).view(2, 3).bfloat16(), "mtp.steps": torch.tensor(2)}
    save_file(heads, tmp_path / "theirs/heads.safetensors", metadata={"format": "pt"})
    names = dict.fromkeys(load_file(tmp_path / "theirs/model.safetensors"), "model.safetensors")
    index = {"weight_map": names | dict.fromkeys(heads, "heads.safetensors")}
    (tmp_path / "theirs/model.safetensors.index.json").write_text(json.dumps(index))
    imported = import_checkpoint(tmp_path / "theirs")
    round_as_read(imported.model, imported)
    out = export_checkpoint(imported.model, imported, tmp_path / "out")
    assert json.loads((out / "model.safetensors.index.json").read_text())["weight_map"] == index["weight_map"]
    round_trip.assert_bitwise(load_file(out / "heads.safetensors"), heads)
    round_trip.assert_bitwise(round_trip.weights(out), round_trip.weights(tmp_path / "theirs"))
    hf.load(out)


def test_experts_in_one_tensor(tmp_path: Path) -> None:
    """transformers' layout in memory. An export keeps the layout of the file."""
    peer = hf.made("Qwen3Next", **qwen.SIZES | qwen.EXPERTS)
    peer.save_pretrained(tmp_path / "fused", save_original_format=False)
    peer.save_pretrained(tmp_path / "apart")
    fused, apart = (import_checkpoint(tmp_path / name) for name in ("fused", "apart"))
    assert "model.layers.0.mlp.experts.gate_up_proj" in fused.source.stored
    round_trip.assert_bitwise(fused.model.state_dict(), apart.model.state_dict())
    again = export_checkpoint(fused.model, fused, tmp_path / "again")
    round_trip.assert_bitwise(round_trip.weights(again), round_trip.weights(tmp_path / "fused"))


def test_an_old_file_of_gpt_neox(tmp_path: Path) -> None:
    """Config keys of transformers 4, buffers among the weights, and another name of the head."""
    sizes = {"hidden_size": 48, "num_hidden_layers": 3, "num_attention_heads": 3, "intermediate_size": 40}
    peer, theirs = hf.made("GPTNeoX", **sizes), tmp_path / "theirs"
    peer.save_pretrained(theirs)
    reconfigure(theirs, rotary_pct=0.25, rotary_emb_base=10000, rope_parameters="absent", attention_bias="absent")

    def age(tensors: dict[str, Tensor]) -> None:
        tensors["lm_head.weight"] = tensors.pop("embed_out.weight")
        tensors["gpt_neox.layers.0.attention.bias"] = torch.ones(1, 1, 8, 8, dtype=torch.bool)
        tensors["gpt_neox.layers.0.attention.masked_bias"] = torch.tensor(-1e9)
        tensors["gpt_neox.layers.2.attention.rotary_emb.inv_freq"] = torch.ones(2)

    rewrite(theirs, age)
    imported = import_checkpoint(theirs)
    with torch.no_grad():
        logits = imported.model(round_trip.tokens())[0]
    assert (logits - hf.run(peer, round_trip.tokens())).abs().max() < 1e-4
    out = export_checkpoint(imported.model, imported, tmp_path / "out")
    round_trip.assert_bitwise(round_trip.weights(out), round_trip.weights(theirs))


# --- files next to the weights ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("container", ["safetensors", "bin"])
def test_weights_have_the_file_mode_of_the_config(original: Path, tmp_path: Path, container: str) -> None:
    if container == "bin":
        as_bin(original)
    imported = import_checkpoint(original)
    out = export_checkpoint(imported.model, imported, tmp_path / "out")
    modes = {path.name: path.stat().st_mode for path in out.iterdir()}
    assert len(set(modes.values())) == 1, modes


def test_links_to_files_outside_the_folder_are_left_out_and_listed(
    original: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A link in a foreign checkpoint could publish a private file of the user."""
    secret, inside = tmp_path / "private" / "key.pem", original / "licences" / "MIT"
    for path in (secret, inside):
        path.parent.mkdir()
        path.write_text(f"{path.name}: a secret")
    (original / "LICENSE").symlink_to(inside)
    (original / "vocab.txt").symlink_to(secret)
    (original / "merges.txt").symlink_to("../private/key.pem")
    (original / "README.md").symlink_to(secret)
    (original / "vocab.json").symlink_to("nowhere")
    imported = import_checkpoint(original)
    capsys.readouterr()
    export_checkpoint(imported.model, imported, tmp_path / "out", {"outcome": "none"})
    out = content(tmp_path / "out")
    assert set(out) == {"config.json", "generation_config.json", "model.safetensors", "LICENSE", "README.md"}
    assert out["LICENSE"] == b"MIT: a secret"
    assert out["README.md"].startswith(b"## Changes")
    assert not any(b"key.pem: a secret" in value for value in out.values())
    left_out = "vocab.txt, merges.txt, README.md"
    expected = f"{tmp_path}/out: without {left_out}: they are links to files outside {original}\n"
    assert capsys.readouterr().err == expected


@pytest.mark.parametrize("blobs", ["blobs", "others"])
def test_links_of_the_hubs_cache_are_copied(original: Path, tmp_path: Path, blobs: str) -> None:
    """snapshots/<revision>/x links to ../../blobs/y. Links elsewhere are left out, also if blobs is a link."""
    cached = tmp_path / "cache" / "models--someone--theirs"
    snapshot = cached / "snapshots" / ("a" * 40)
    snapshot.mkdir(parents=True)
    (tmp_path / "others").mkdir()
    if blobs == "blobs":
        (cached / "blobs").mkdir()
    else:
        (cached / "blobs").symlink_to(tmp_path / "others")
    (original / "LICENSE").write_text("MIT")
    for number, path in enumerate(sorted(original.iterdir())):
        path.rename(cached / "blobs" / f"{number}")
        (snapshot / path.name).symlink_to(f"../../blobs/{number}")
    imported = import_checkpoint(snapshot)
    export_checkpoint(imported.model, imported, tmp_path / "out")
    assert ("LICENSE" in content(tmp_path / "out")) == (blobs == "blobs")
    assert imported.source.outside == (() if blobs == "blobs" else ("generation_config.json", "LICENSE"))


def test_the_tokenizer_and_the_model_card_are_copied(original: Path, tmp_path: Path) -> None:
    files = {"tokenizer.json": b"{}", "tokenizer_config.json": b'{"a": 1}', "special_tokens_map.json": b"[]"}
    for name, data in (files | {"secrets.env": b"x", "modeling.py": b"raise SystemExit"}).items():
        (original / name).write_bytes(data)
    (original / "README.md").write_text("---\nlicense: mit\n---\n\n# Their model\n")
    imported = import_checkpoint(original)
    assert {path.name for path in imported.source.companions} == {*files, "generation_config.json"}
    changes = {"Text": "4 files, sha256 abc", "Steps": 100, "Perplexity before": 12.5, "Perplexity after": 9.25}
    out = content(export_checkpoint(imported.model, imported, tmp_path / "out", changes))
    assert set(out) == {"config.json", "generation_config.json", "model.safetensors", "README.md", *files}
    assert {name: out[name] for name in files} == files
    card = out["README.md"].decode()
    assert card.startswith("---\nlicense: mit\n---\n\n# Their model\n\n## Changes\n")
    assert card.endswith(
        "- Text: 4 files, sha256 abc\n- Steps: 100\n- Perplexity before: 12.5\n- Perplexity after: 9.25\n"
    )


@pytest.mark.parametrize("named_in", ["config.json", "tokenizer_config.json", None])
def test_the_code_that_a_config_names_is_copied(original: Path, tmp_path: Path, named_in: str | None) -> None:
    """transformers loads it with trust_remote_code, as from the original's folder."""
    own = {"tokenization.py": b"raise SystemExit", "rwkv_vocab.txt": b"1 a"}
    for name, data in own.items():
        (original / name).write_bytes(data)
    if named_in is not None:
        config = json.loads((original / named_in).read_text()) if named_in == "config.json" else {}
        (original / named_in).write_text(json.dumps(config | {"auto_map": {"AutoTokenizer": ["tokenization.T", None]}}))
    imported = import_checkpoint(original)
    out = content(export_checkpoint(imported.model, imported, tmp_path / "out"))
    assert {name: out[name] for name in own if name in out} == (own if named_in else {})


def test_the_peak_learning_rate_is_that_of_the_nearest_size(original: Path) -> None:
    from ssm.models.formats.format import usual_peak_lr

    assert import_checkpoint(original).spec.peak_lr == 1e-3
    assert [usual_peak_lr(int(n * 1e6)) for n in (1, 128.9, 400, 3000)] == [1e-3, 6e-4, 3e-4, 2e-4]


# --- memory -----------------------------------------------------------------------------------------------------------

PEAK = """
import sys, torch
from pathlib import Path
from ssm.models.formats.read import import_source
from ssm.models.formats.source import find_source
torch.set_num_threads(1)

def status(key):
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if key in line) / 1024

import_source(find_source(sys.argv[1]))  # imports modules
before = status("VmRSS")
imported = import_source(find_source(sys.argv[2]))
size = sum(parameter.nbytes for parameter in imported.model.parameters()) / 2**20
print(size, status("VmHWM") - before)
"""


GLA = {
    "name": "large", "d_model": 1024, "n_layers": 4, "norm_eps": 1e-6, "tie_embeddings": False, "peak_lr": 1e-3,
    "mixer": {"kind": "gla", "norm_eps": 1e-6}, "ffn": {"kind": "gated_mlp", "d_hidden": 2816},
}  # fmt: skip
MAMBA2 = {"name": "large", "d_model": 1024, "n_layers": 8, "peak_lr": 1e-3, "mixer": {"kind": "mamba2"}}


@pytest.mark.exhaustive
@pytest.mark.parametrize(("spec", "key"), [(GLA, "fla_gla"), (MAMBA2, "mamba_ssm")], ids=["safetensors", "bin"])
def test_loading_needs_little_more_than_the_weights(
    spec: dict[str, object], key: str, original: Path, tmp_path: Path
) -> None:
    """Peak resident memory in a separate process, for 200 MB of weights with parts that are joined."""
    large = write_checkpoint(tiny.build_model(ModelSpec.parse(spec, "test"), 1000, 0), key, tmp_path / "large")
    root = Path(__file__).parents[3]
    environment = os.environ | {"PYTHONPATH": f"{root}:{root / 'kernels'}", "OMP_NUM_THREADS": "1"}
    done = subprocess.run(
        [sys.executable, "-c", PEAK, original, large], env=environment, capture_output=True, text=True, check=True
    )
    size, peak = (float(word) for word in done.stdout.split())
    assert size > 190
    assert peak < 1.2 * size
