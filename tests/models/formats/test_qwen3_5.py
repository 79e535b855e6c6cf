"""transformers' Qwen3.5 text model, in and out: Gated DeltaNet between attention with norms and a gate."""

from __future__ import annotations

import inspect
from pathlib import Path
from typing import Any

import pytest
import torch
from models.formats import hf, round_trip
from transformers import Qwen3_5ForCausalLM, Qwen3_5TextConfig
from transformers.models.qwen3_5 import modeling_qwen3_5 as theirs

from ssm.base.errors import CheckpointError
from ssm.models.formats.qwen3_5 import LAYERS, QWEN3_5

SIZES = {
    "hidden_size": 32, "num_hidden_layers": 3, "intermediate_size": 40, "num_attention_heads": 4,
    "num_key_value_heads": 2, "head_dim": 8, "linear_num_key_heads": 2, "linear_num_value_heads": 4,
    "linear_key_head_dim": 6, "linear_value_head_dim": 10, "linear_conv_kernel_dim": 3,
    "layer_types": ["linear_attention", "linear_attention", "full_attention"], "max_position_embeddings": 128,
    "bos_token_id": None, "eos_token_id": None,
}  # fmt: skip
VARIANTS: dict[str, dict[str, Any]] = {
    "grouped": {},
    "biases, rotated whole, tied": {
        "attention_bias": True, "tie_word_embeddings": True, "rms_norm_eps": 1e-3, "linear_num_value_heads": 2,
        "layer_types": ["linear_attention", "full_attention", "linear_attention"],
        "rope_parameters": {"rope_type": "default", "rope_theta": 100.0, "partial_rotary_factor": 1.0},
    },
}  # fmt: skip


@pytest.fixture(autouse=True)
def _plain_rule(monkeypatch: pytest.MonkeyPatch) -> None:
    """Their rule in torch, whether or not fla is there, whose kernels need a GPU."""
    for name in ("torch_chunk_gated_delta_rule", "torch_recurrent_gated_delta_rule"):
        monkeypatch.setattr(theirs, name, inspect.unwrap(getattr(theirs, name)))


@pytest.mark.parametrize("changes", VARIANTS.values(), ids=VARIANTS)
def test_round_trip(changes: dict[str, Any], tmp_path: Path) -> None:
    torch.manual_seed(0)
    peer = Qwen3_5ForCausalLM(Qwen3_5TextConfig(vocab_size=round_trip.VOCABULARY, **(SIZES | changes)))
    imported = hf.check(round_trip.moved(peer), tmp_path)
    assert imported.format.key == "qwen3_5"
    kinds = [LAYERS[mixer.kind] for mixer in imported.spec.mixers()]
    assert kinds == (SIZES | changes)["layer_types"]
    assert imported.context == 128


def test_layers_go_by_their_interval_where_they_are_not_listed() -> None:
    sizes = {key: value for key, value in SIZES.items() if key != "layer_types"} | {"num_hidden_layers": 8}
    found, _ = QWEN3_5.spec(sizes | {"vocab_size": 37}, "tiny", "config.json")
    assert [mixer.kind for mixer in found.mixers()] == 2 * [*3 * ["gated_deltanet"], "attention"]
    with pytest.raises(CheckpointError, match=r"layer_types is .*sliding"):
        QWEN3_5.spec(SIZES | {"vocab_size": 37, "layer_types": 3 * ["sliding_attention"]}, "tiny", "config.json")
