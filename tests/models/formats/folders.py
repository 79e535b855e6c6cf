"""Folders of checkpoints, looked at and changed."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import torch
from models.formats import hf
from safetensors.torch import load_file, save_file
from torch import Tensor


def content(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


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


def as_bin(folder: Path) -> Path:
    torch.save(load_file(folder / "model.safetensors"), folder / "pytorch_model.bin")
    (folder / "model.safetensors").unlink()
    return folder / "pytorch_model.bin"
