"""Read and change folders of checkpoints."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import torch
from models.formats import hf
from safetensors.torch import load_file, save_file
from torch import Tensor


def rewrite(folder: Path, change: Callable[[dict[str, Tensor]], None]) -> None:
    tensors = load_file(folder / "model.safetensors")
    change(tensors)
    save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})


def reconfigure(folder: Path, **changes: object) -> None:
    config = json.loads((folder / "config.json").read_text()) | changes
    (folder / "config.json").write_text(json.dumps({key: value for key, value in config.items() if value != "absent"}))


def shard(folder: Path) -> None:
    hf.load(folder).save_pretrained(folder, max_shard_size="40KB")
    (folder / "model.safetensors").unlink(missing_ok=True)


def one_shard(folder: Path, suffix: str | None = None) -> None:
    """Give the only file of weights the name of a shard (with this suffix), and write an index."""
    (weights,) = (path for path in folder.iterdir() if path.suffix in (".safetensors", ".bin"))
    only = weights.with_stem(f"{weights.stem}-00001-of-00001").with_suffix(suffix or weights.suffix)
    names = load_file(weights) if weights.suffix == ".safetensors" else torch.load(weights, weights_only=True)
    index = {"metadata": {"made_by": "nobody"}, "weight_map": dict.fromkeys(names, only.name)}
    (folder / f"{weights.name}.index.json").write_text(json.dumps(index))
    weights.rename(only)


def as_bin(folder: Path) -> Path:
    torch.save(load_file(folder / "model.safetensors"), folder / "pytorch_model.bin")
    (folder / "model.safetensors").unlink()
    return folder / "pytorch_model.bin"
