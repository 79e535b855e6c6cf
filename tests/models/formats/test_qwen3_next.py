"""transformers' Qwen3-Next, in and out: an interleaved projection, and experts."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from models.formats import hf, qwen, round_trip
from transformers.models.qwen3_next import modeling_qwen3_next as theirs

from ssm.base.errors import CheckpointError, ConfigError
from ssm.models.formats import export_checkpoint, import_checkpoint
from ssm.models.formats.qwen3_next import QWEN3_NEXT
from ssm.models.load import context_of
from ssm.plan.parameters import operations_per_token, parameter_count

SIZES = qwen.SIZES | qwen.EXPERTS | {"vocab_size": 37}
VARIANTS: dict[str, dict[str, Any]] = {
    "grouped": {},
    "a dense layer, raw weights, tied": {
        "mlp_only_layers": [1], "norm_topk_prob": False, "tie_word_embeddings": True, "linear_num_value_heads": 2,
        "attention_bias": True,
    },
}  # fmt: skip


@pytest.mark.parametrize("changes", VARIANTS.values(), ids=VARIANTS)
def test_round_trip(changes: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    qwen.plain_rule(theirs, monkeypatch)
    config = qwen.SIZES | qwen.EXPERTS | changes
    imported = hf.check(qwen.loaded("Qwen3Next", tmp_path / "made", **config), tmp_path)
    assert imported.format.key == "qwen3_next"
    dense = changes.get("mlp_only_layers", [])
    assert [ffn.kind for ffn in imported.spec.ffns()] == ["gated_mlp" if i in dense else "experts" for i in range(3)]
    assert context_of(imported.source.config) == 128


def test_the_published_size() -> None:
    """80B-A3B: transformers' defaults; operations are two a parameter that a token meets."""
    published = theirs.Qwen3NextConfig()
    found, vocab_size = QWEN3_NEXT.spec(published.to_dict(), "published", "config.json")
    with torch.device("meta"):
        wanted = sum(parameter.numel() for parameter in theirs.Qwen3NextForCausalLM(published).parameters())
    assert parameter_count(found, vocab_size) == wanted
    assert wanted == pytest.approx(80e9, rel=0.01)
    assert 3e9 < operations_per_token(found, vocab_size, context=1) / 2 < 4e9


def test_experts_in_one_tensor(tmp_path: Path) -> None:
    """As transformers has them in memory; what was read so is written so."""
    peer = hf.made("Qwen3Next", **qwen.SIZES | qwen.EXPERTS)
    peer.save_pretrained(tmp_path / "fused", save_original_format=False)
    peer.save_pretrained(tmp_path / "apart")
    fused, apart = (import_checkpoint(tmp_path / name) for name in ("fused", "apart"))
    assert "model.layers.0.mlp.experts.gate_up_proj" in fused.source.stored
    round_trip.assert_bitwise(fused.model.state_dict(), apart.model.state_dict())
    again = export_checkpoint(fused.model, fused, tmp_path / "again")
    round_trip.assert_bitwise(round_trip.weights(again), round_trip.weights(tmp_path / "fused"))


def test_heads_of_more_tokens_go_home_as_they_came(tmp_path: Path) -> None:
    qwen.check_heads_of_more_tokens("Qwen3Next", tmp_path, **qwen.SIZES | qwen.EXPERTS)


@pytest.mark.parametrize(
    ("changes", "dense"),
    [
        ({"decoder_sparse_step": 2}, [0, 2]),
        ({"mlp_only_layers": [2], "decoder_sparse_step": 2}, [0, 2]),
        ({"mlp_only_layers": [1], "decoder_sparse_step": 2}, [0, 1, 2]),
        ({"num_experts": 0}, [0, 1, 2]),
    ],
    ids=str,
)
def test_layers_without_experts(changes: dict[str, Any], dense: list[int]) -> None:
    """As in their decoder layer; and what is written says the same."""
    found, vocab_size = QWEN3_NEXT.spec(SIZES | changes, "tiny", "config.json")
    assert [i for i, ffn in enumerate(found.ffns()) if ffn is not None and ffn.kind == "gated_mlp"] == dense
    model = theirs.Qwen3NextModel(theirs.Qwen3NextConfig(**SIZES | changes))
    assert [i for i, layer in enumerate(model.layers) if isinstance(layer.mlp, theirs.Qwen3NextMLP)] == dense
    assert QWEN3_NEXT.config_of(found, vocab_size)["mlp_only_layers"] == dense


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"hidden_act": "gelu"}, "hidden_act is 'gelu'"),
        ({"attn_output_gate": False}, "attn_output_gate is False"),
        ({"num_experts_per_tok": 6}, "top_k: 6 of 5 experts cannot be chosen"),
        ({"rope_scaling": {"type": "yarn"}}, "ssm does not support scaled rotary positions"),
    ],
    ids=str,
)
def test_refused(changes: dict[str, Any], says: str) -> None:
    with pytest.raises((CheckpointError, ConfigError)) as error:
        QWEN3_NEXT.spec(SIZES | changes, "tiny", "config.json")
    assert says in str(error.value)
    assert "\n" not in str(error.value)
