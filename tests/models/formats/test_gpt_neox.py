"""Old files of transformers' GPT-NeoX (Pythia)."""

from __future__ import annotations

import json
from pathlib import Path

import torch
from models.formats import hf, round_trip
from safetensors.torch import load_file, save_file

from ssm.models.formats import export_checkpoint, import_checkpoint

SIZES = {"hidden_size": 48, "num_hidden_layers": 3, "num_attention_heads": 3, "intermediate_size": 40}


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
