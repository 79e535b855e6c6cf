"""transformers' GPT-NeoX (Pythia), in and out: partial rotary positions, parallel residual, biases."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from models.formats import hf, round_trip
from safetensors.torch import load_file, save_file

from ssm.models.formats import export_checkpoint, import_checkpoint
from ssm.models.opening import context_of

SIZES = {"hidden_size": 48, "num_hidden_layers": 3, "num_attention_heads": 3, "intermediate_size": 40}
VARIANTS: dict[str, dict[str, Any]] = {
    "Pythia's": {},
    "one after the other, all rotated": {"use_parallel_residual": False, "rotary_pct": 1.0, "rotary_emb_base": 500},
    "no bias, tied": {"attention_bias": False, "tie_word_embeddings": True, "layer_norm_eps": 1e-3},
    "gelu by tanh": {"hidden_act": "gelu_new"},
}


@pytest.mark.parametrize("changes", VARIANTS.values(), ids=VARIANTS)
def test_round_trip(changes: dict[str, Any], tmp_path: Path) -> None:
    imported = hf.check(hf.made("GPTNeoX", **SIZES, **changes), tmp_path)
    assert imported.format.key == "gpt_neox"
    assert imported.spec.parallel_residual is changes.get("use_parallel_residual", True)
    assert imported.spec.mixer.rotary_pct == changes.get("rotary_pct", 0.25)
    assert context_of(imported.source.config) == 2048


def test_an_old_file(tmp_path: Path) -> None:
    """Config keys of transformers 4, buffers among the weights, and a head by its other name; all of it goes home."""
    peer, theirs = hf.made("GPTNeoX", **SIZES), tmp_path / "theirs"
    peer.save_pretrained(theirs)
    config = json.loads((theirs / "config.json").read_text())
    config |= {"rotary_pct": 0.25, "rotary_emb_base": 10000}
    del config["rope_parameters"], config["attention_bias"]
    (theirs / "config.json").write_text(json.dumps(config))
    tensors = load_file(theirs / "model.safetensors")
    tensors["lm_head.weight"] = tensors.pop("embed_out.weight")
    tensors["gpt_neox.layers.0.attention.bias"] = torch.ones(1, 1, 8, 8, dtype=torch.bool)
    tensors["gpt_neox.layers.0.attention.masked_bias"] = torch.tensor(-1e9)
    tensors["gpt_neox.layers.2.attention.rotary_emb.inv_freq"] = torch.ones(2)
    save_file(tensors, theirs / "model.safetensors", metadata={"format": "pt"})
    imported = import_checkpoint(theirs)
    with torch.no_grad():
        got = imported.model(round_trip.tokens())[0]
    assert (got - hf.run(peer, round_trip.tokens())).abs().max() < 1e-4
    home = export_checkpoint(imported.model, imported, tmp_path / "home")
    round_trip.assert_bitwise(round_trip.weights(home), round_trip.weights(theirs))
