"""transformers' Kimi Linear, in and out: KDA, attention through a latent, experts chosen by sigmoids and a bias."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from models.formats import hf, qwen
from transformers.models.kimi_linear import modeling_kimi_linear as theirs

from ssm.base.errors import CheckpointError, ConfigError
from ssm.models.formats.kimi_linear import KIMI_LINEAR
from ssm.models.load import context_of
from ssm.plan.parameters import operations_per_token, parameter_count

SIZES = {
    "hidden_size": 32, "num_hidden_layers": 3, "intermediate_size": 40, "num_attention_heads": 4,
    "num_key_value_heads": 4, "kv_lora_rank": 9, "qk_nope_head_dim": 8, "qk_rope_head_dim": 6, "v_head_dim": 7,
    "linear_num_heads": 3, "linear_head_dim": 5, "linear_conv_kernel_dim": 3, "max_position_embeddings": 128,
    "layer_types": ["linear_attention", "linear_attention", "full_attention"], "num_local_experts": 5,
    "num_experts_per_tok": 2, "moe_intermediate_size": 12, "n_group": 1, "topk_group": 1, "pad_token_id": None,
    "bos_token_id": None, "eos_token_id": None,
}  # fmt: skip
OWN = {  # as Moonshot's config.json has them
    "vocab_size": 37, "hidden_size": 32, "num_hidden_layers": 4, "intermediate_size": 40, "num_attention_heads": 4,
    "kv_lora_rank": 9, "qk_nope_head_dim": 8, "qk_rope_head_dim": 6, "v_head_dim": 7, "num_experts": 5,
    "num_experts_per_token": 2, "moe_intermediate_size": 12, "first_k_dense_replace": 1, "moe_layer_freq": 1,
    "linear_attn_config": {
        "kda_layers": [1, 2, 4], "full_attn_layers": [3], "head_dim": 5, "num_heads": 3, "short_conv_kernel_size": 3,
    },
}  # fmt: skip
VARIANTS: dict[str, dict[str, Any]] = {
    "as published": {},
    "all dense but one, raw weights, two shared": {
        "mlp_layer_types": ["dense", "sparse", "dense"], "norm_topk_prob": False, "n_shared_experts": 2,
        "rms_norm_eps": 1e-3, "layer_types": ["linear_attention", "full_attention", "linear_attention"],
    },
}  # fmt: skip


@pytest.mark.parametrize("changes", VARIANTS.values(), ids=VARIANTS)
def test_round_trip(changes: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    qwen.plain_rule(theirs, monkeypatch)
    peer = hf.made("KimiLinear", **SIZES | changes)
    for name, bias in peer.named_buffers():
        if name.endswith("e_score_correction_bias"):
            bias.copy_(torch.linspace(0.4, -0.4, 5))
    peer.save_pretrained(tmp_path / "made")
    imported = hf.check(hf.load(tmp_path / "made"), tmp_path)
    assert imported.format.key == "kimi_linear"
    kinds = (SIZES | changes)["layer_types"]
    assert ["attention" if kind == "full_attention" else "kda" for kind in kinds] == [
        mixer.kind for mixer in imported.spec.mixers()
    ]
    assert context_of(imported.source.config) == 128


def test_moonshots_own_config() -> None:
    """Layers are counted from 1 there."""
    found, vocab_size = KIMI_LINEAR.spec(OWN, "tiny", "config.json")
    assert [mixer.kind for mixer in found.mixers()] == ["kda", "kda", "attention", "kda"]
    assert [ffn.kind for ffn in found.ffns() if ffn is not None] == ["gated_mlp", "experts", "experts", "experts"]
    written = KIMI_LINEAR.config_of(found, vocab_size)
    assert written["layer_types"] == theirs.KimiLinearConfig(**OWN).layer_types
    assert written["mlp_layer_types"] == theirs.KimiLinearConfig(**OWN).mlp_layer_types


def test_the_published_size() -> None:
    """48B-A3B: transformers' defaults."""
    published = theirs.KimiLinearConfig()
    found, vocab_size = KIMI_LINEAR.spec(published.to_dict(), "published", "config.json")
    with torch.device("meta"):
        wanted = sum(parameter.numel() for parameter in theirs.KimiLinearForCausalLM(published).parameters())
    assert parameter_count(found, vocab_size) == wanted
    assert wanted == pytest.approx(48e9, rel=0.03)
    assert 3e9 < operations_per_token(found, vocab_size, context=1) / 2 < 3.5e9


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"hidden_act": "gelu"}, "hidden_act is 'gelu'"),
        ({"attention_bias": True}, "attention_bias is True"),
        ({"tie_word_embeddings": True}, "tie_word_embeddings is True"),
        ({"q_lora_rank": 8}, "q_lora_rank is 8"),
        ({"num_expert_group": 5}, "num_expert_group is 5"),
        ({"topk_group": 2}, "topk_group is 2"),
        ({"moe_layer_freq": 2}, "moe_layer_freq is 2"),
        ({"moe_router_activation_func": "softmax"}, "moe_router_activation_func is 'softmax'"),
        ({"mla_use_nope": False}, "mla_use_nope is False"),
        ({"num_key_value_heads": 2}, "num_key_value_heads is 2; ssm supports only num_attention_heads here"),
        ({"mlp_layer_types": ["dense"]}, "mlp_layer_types is ['dense'], expected 4 of dense and sparse"),
        ({"layer_types": 4 * ["full_attention"]}, "expected 4 of linear_attention and full_attention"),
        ({"num_experts_per_token": 6}, "top_k: 6 of 5 experts cannot be chosen"),
    ],
    ids=str,
)
def test_refused(changes: dict[str, Any], says: str) -> None:
    with pytest.raises((CheckpointError, ConfigError)) as error:
        KIMI_LINEAR.spec(OWN | changes, "tiny", "config.json")
    assert says in str(error.value)
    assert "\n" not in str(error.value)
