"""Small models of transformers with Gated DeltaNet or KDA, on the CPU."""

from __future__ import annotations

import inspect
import json
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch
from models.formats import hf, round_trip
from safetensors.torch import load_file, save_file
from torch import nn

from ssm.models.formats import export_checkpoint, import_checkpoint, round_as_read

SIZES = {
    "hidden_size": 32, "num_hidden_layers": 3, "intermediate_size": 40, "num_attention_heads": 4,
    "num_key_value_heads": 2, "head_dim": 8, "linear_num_key_heads": 2, "linear_num_value_heads": 4,
    "linear_key_head_dim": 6, "linear_value_head_dim": 10, "linear_conv_kernel_dim": 3,
    "layer_types": ["linear_attention", "linear_attention", "full_attention"], "max_position_embeddings": 128,
    "bos_token_id": None, "eos_token_id": None,
}  # fmt: skip
EXPERTS = {
    "num_experts": 5, "num_experts_per_tok": 2, "moe_intermediate_size": 12, "shared_expert_intermediate_size": 16,
}  # fmt: skip


def plain_rule(theirs: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    """Their rule in torch, whether or not fla is there, whose kernels need a GPU."""
    for name, function in vars(theirs).copy().items():
        if name.endswith(("_gated_delta_rule", "_kimi_delta_attention")):
            monkeypatch.setattr(theirs, name, inspect.unwrap(function))


def check_heads_of_more_tokens(kind: str, folder: Path, **config: Any) -> None:
    """They are not read, and written as they came: in their own file, of their own type."""
    hf.made(kind, **config).save_pretrained(folder / "theirs")
    heads = {"mtp.fc.weight": torch.arange(6.0).view(2, 3).bfloat16(), "mtp.steps": torch.tensor(2)}
    save_file(heads, folder / "theirs/heads.safetensors", metadata={"format": "pt"})
    names = dict.fromkeys(load_file(folder / "theirs/model.safetensors"), "model.safetensors")
    index = {"weight_map": names | dict.fromkeys(heads, "heads.safetensors")}
    (folder / "theirs/model.safetensors.index.json").write_text(json.dumps(index))
    imported = import_checkpoint(folder / "theirs")
    round_as_read(imported.model, imported)
    home = export_checkpoint(imported.model, imported, folder / "home")
    assert json.loads((home / "model.safetensors.index.json").read_text())["weight_map"] == index["weight_map"]
    round_trip.assert_bitwise(load_file(home / "heads.safetensors"), heads)
    round_trip.assert_bitwise(round_trip.weights(home), round_trip.weights(folder / "theirs"))
    hf.load(home)


def loaded(kind: str, folder: Path, **config: Any) -> nn.Module:
    """A model with random weights, where a file has them: a product with one row is rounded by where it lies."""
    hf.made(kind, **config).save_pretrained(folder)
    return hf.load(folder)
