"""Where checkpoints are found, their shards and types, what travels along, and the memory that loading needs."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from models import tiny
from models.formats import hf, round_trip
from models.formats.folders import as_bin, content, one_shard, rewrite, shard
from torch import Tensor

from ssm.base.errors import CheckpointError
from ssm.models.formats import export_checkpoint, import_checkpoint
from ssm.models.load import load_any_model
from ssm.specs.model import ModelSpec

# --- found ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("container", "name"), [("safetensors", "mine.safetensors"), ("bin", "mine.pt")])
def test_a_file_with_its_config_beside_it(original: Path, container: str, name: str) -> None:
    """Under a name that nobody looks for; the copy's folder says it in an index."""
    weights = original / "model.safetensors" if container == "safetensors" else as_bin(original)
    weights.rename(original / name)
    imported = import_checkpoint(original / name)
    assert imported.spec.name == "original"
    assert imported.files == (original / "config.json", original / name)
    out = export_checkpoint(imported.model, imported, original.parent / "out")
    assert set(content(out)) == {"config.json", "generation_config.json", name, f"{weights.name}.index.json"}
    assert import_checkpoint(out).files == (out / "config.json", out / name)


def test_a_name_of_the_hub(original: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """From the hub's cache on this machine; nothing is asked of the network."""
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
    monkeypatch.setitem(sys.modules, "huggingface_hub", None)
    with pytest.raises(CheckpointError, match=r"need `pip install 'ssm-length\[hub\]'`"):
        import_checkpoint("someone/other")


# --- shards and types -------------------------------------------------------------------------------------------------


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
    """As some checkpoints lie on the hub; its folder opens again, here and in transformers."""
    if container == "bin":
        as_bin(original)
    one_shard(original)
    imported = import_checkpoint(original)
    out = export_checkpoint(imported.model, imported, tmp_path / "out")
    assert set(content(out)) == set(content(original))
    round_trip.assert_bitwise(round_trip.weights(original), round_trip.weights(out))
    again = load_any_model(out).imported
    assert again is not None
    round_trip.assert_bitwise(imported.model.state_dict(), again.model.state_dict())
    hf.load(out)


@pytest.mark.parametrize("key", ["mamba", "mamba_ssm"])
def test_a_large_model_is_written_in_shards(
    key: str, original: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    imported = import_checkpoint(original)
    monkeypatch.setattr("ssm.models.formats.write.SHARD", 40_000)
    out = export_checkpoint(imported.model, key, tmp_path / "out")
    assert len(list(out.glob("*-of-*"))) > 3
    again = import_checkpoint(out)
    for ours, theirs in zip(imported.model.parameters(), again.model.parameters(), strict=True):
        assert torch.equal(ours, theirs)


def test_every_tensor_keeps_its_own_type(original: Path, tmp_path: Path) -> None:
    """As in RWKV's files, where decays are float32 among float16."""

    def mixed(tensors: dict[str, Tensor]) -> None:
        for name in tensors:
            if not name.endswith("A_log"):
                tensors[name] = tensors[name].half()

    rewrite(original, mixed)
    imported = import_checkpoint(original)
    assert imported.dtype == torch.float16
    assert imported.model.layers[0].mixer.A_log.dtype == torch.float32
    out = export_checkpoint(imported.model.float(), imported, tmp_path / "out")
    round_trip.assert_bitwise(round_trip.weights(original), round_trip.weights(out))


# --- what travels along -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("container", ["safetensors", "bin"])
def test_who_may_read_the_config_may_read_the_weights(original: Path, tmp_path: Path, container: str) -> None:
    if container == "bin":
        as_bin(original)
    imported = import_checkpoint(original)
    out = export_checkpoint(imported.model, imported, tmp_path / "out")
    modes = {path.name: path.stat().st_mode for path in out.iterdir()}
    assert len(set(modes.values())) == 1, modes


def test_what_leads_out_of_the_folder_does_not_travel_and_is_named(
    original: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A link in somebody's checkpoint may show a file of this machine, which its user would publish."""
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
    said = capsys.readouterr().err
    assert (
        said
        == f"{tmp_path}/out: without vocab.txt, merges.txt, README.md: they are links to files outside {original}\n"
    )


@pytest.mark.parametrize("blobs", ["blobs", "others"])
def test_the_hubs_own_links_do_travel(original: Path, tmp_path: Path, blobs: str) -> None:
    """snapshots/<revision>/x is a link to ../../blobs/y; to anywhere else it leads out, blobs that are a link too."""
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


def test_the_tokenizer_and_the_card_travel(original: Path, tmp_path: Path) -> None:
    files = {"tokenizer.json": b"{}", "tokenizer_config.json": b'{"a": 1}', "special_tokens_map.json": b"[]"}
    for name, data in (files | {"secrets.env": b"x", "modeling.py": b"raise SystemExit"}).items():
        (original / name).write_bytes(data)
    (original / "README.md").write_text("---\nlicense: mit\n---\n\n# Their model\n")
    imported = import_checkpoint(original)
    assert {path.name for path in imported.tokenizer_files} == {*files, "generation_config.json"}
    changes = {"Text": "4 files, sha256 abc", "Steps": 100, "Perplexity before": 12.5, "Perplexity after": 9.25}
    out = content(export_checkpoint(imported.model, imported, tmp_path / "out", changes))
    assert set(out) == {"config.json", "generation_config.json", "model.safetensors", "README.md", *files}
    assert {name: out[name] for name in files} == files
    card = out["README.md"].decode()
    assert card.startswith("---\nlicense: mit\n---\n\n# Their model\n\n## Changes\n")
    assert card.endswith(
        "- Text: 4 files, sha256 abc\n- Steps: 100\n- Perplexity before: 12.5\n- Perplexity after: 9.25\n"
    )


def test_the_peak_learning_rate_is_that_of_the_nearest_size(original: Path) -> None:
    from ssm.models.formats.format import usual_peak_lr

    assert import_checkpoint(original).spec.peak_lr == 1e-3
    assert [usual_peak_lr(int(n * 1e6)) for n in (1, 128.9, 400, 3000)] == [1e-3, 6e-4, 3e-4, 2e-4]


# --- memory -----------------------------------------------------------------------------------------------------------

PEAK = """
import sys, torch
from pathlib import Path
from ssm.models.formats import import_checkpoint
torch.set_num_threads(1)

def status(key):
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if key in line) / 1024

import_checkpoint(sys.argv[1])  # all that is loaded once
before = status("VmRSS")
imported = import_checkpoint(sys.argv[2])
size = sum(parameter.nbytes for parameter in imported.model.parameters()) / 2**20
print(size, status("VmHWM") - before)
"""


GLA = {
    "name": "large", "d_model": 1024, "n_layers": 4, "norm_eps": 1e-6, "tie_embeddings": False, "peak_lr": 1e-3,
    "mixer": {"kind": "gla", "norm_eps": 1e-6}, "ffn": {"kind": "gated_mlp", "d_hidden": 2816},
}  # fmt: skip
MAMBA2 = {"name": "large", "d_model": 1024, "n_layers": 8, "peak_lr": 1e-3, "mixer": {"kind": "mamba2"}}


@pytest.mark.exhaustive
@pytest.mark.parametrize(
    ("spec", "key"),
    [(GLA, "fla_gla"), (MAMBA2, "mamba_ssm")],
    ids=["safetensors", "bin"],
)
def test_loading_needs_little_more_than_the_weights(
    spec: dict[str, object], key: str, original: Path, tmp_path: Path
) -> None:
    """The peak of resident memory, measured in a process of its own over 200 MB of weights; parts are put together."""
    large = export_checkpoint(tiny.build_model(ModelSpec.parse(spec, "test"), 1000, 0), key, tmp_path / "large")
    root = Path(__file__).parents[3]
    environment = os.environ | {"PYTHONPATH": f"{root}:{root / 'kernels'}", "OMP_NUM_THREADS": "1"}
    done = subprocess.run(
        [sys.executable, "-c", PEAK, original, large], env=environment, capture_output=True, text=True, check=True
    )
    size, peak = (float(word) for word in done.stdout.split())
    assert size > 190
    assert peak < 1.2 * size
