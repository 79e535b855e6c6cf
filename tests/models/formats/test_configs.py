"""config.json of every format: what ssm reads, what it refuses, and what it writes."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from models import tiny
from models.formats import qwen
from transformers.models.kimi_linear import modeling_kimi_linear as kimi
from transformers.models.qwen3_next import modeling_qwen3_next as qwen3_next

from ssm.base.errors import CheckpointError, ConfigError
from ssm.models.formats import FORMATS
from ssm.plan.parameters import operations_per_token, parameter_count

FLA = {"hidden_size": 32, "num_hidden_layers": 3}
KIMI = {  # keys as in Moonshot's files
    "hidden_size": 32, "num_hidden_layers": 4, "intermediate_size": 40, "num_attention_heads": 4,
    "kv_lora_rank": 9, "qk_nope_head_dim": 8, "qk_rope_head_dim": 6, "v_head_dim": 7, "num_experts": 5,
    "num_experts_per_token": 2, "moe_intermediate_size": 12, "first_k_dense_replace": 1, "moe_layer_freq": 1,
    "linear_attn_config": {
        "kda_layers": [1, 2, 4], "full_attn_layers": [3], "head_dim": 5, "num_heads": 3, "short_conv_kernel_size": 3,
    },
}  # fmt: skip
MAMBA_SSM = {"d_model": 32, "n_layer": 3, "ssm_cfg": {}, "rms_norm": True}
CONFIGS: dict[str, dict[str, Any]] = {
    "fla_mamba2": FLA | {"head_dim": 16},
    "fla_deltanet": FLA, "fla_kda": FLA, "fla_rwkv7": FLA | {"head_dim": 16}, "mamba_ssm": MAMBA_SSM,
    "qwen3_5": qwen.SIZES, "qwen3_5_moe": qwen.SIZES, "qwen3_next": qwen.SIZES | qwen.EXPERTS, "kimi_linear": KIMI,
}  # fmt: skip
REFUSED: list[tuple[str, dict[str, Any], str]] = [
    ("fla_mamba2", {"norm_eps": 1e-6}, "norm_eps is 1e-06; ssm supports only 1e-05 for fla's Mamba-2"),
    ("fla_mamba2", {"norm_before_gate": True}, "norm_before_gate is True"),
    ("fla_mamba2", {"rmsnorm": False}, "rmsnorm is False"),
    ("fla_mamba2", {"D_has_hdim": True}, "D_has_hdim is True"),
    ("fla_mamba2", {"num_heads": 3}, "expand * hidden_size = 64 is not num_heads * head_dim = 48"),
    ("fla_deltanet", {"use_beta": False}, "use_beta is False; ssm supports only True for fla's DeltaNet"),
    ("fla_deltanet", {"qk_norm": "sum"}, "qk_norm is 'sum'"),
    ("fla_deltanet", {"use_short_conv": False}, "use_short_conv is False"),
    ("fla_kda", {"lower_bound": -5.0}, "lower_bound is -5.0; ssm supports only None for fla's KDA"),
    ("fla_rwkv7", {"value_dim": 64}, "value_dim is 64; ssm supports only the model's width, 32"),
    ("fla_rwkv7", {"v_low_rank_dim": None}, "v_low_rank_dim is None"),
    ("qwen3_5", {"hidden_act": "gelu"}, "hidden_act is 'gelu'"),
    ("qwen3_5", {"attn_output_gate": False}, "attn_output_gate is False"),
    ("qwen3_5", {"num_experts": 8}, "num_experts is 8; ssm supports only None or 0 for transformers' Qwen3.5"),
    ("qwen3_5", {"layer_types": 3 * ["sliding_attention"]}, "layer_types is ['sliding_attention', "),
    ("qwen3_5_moe", {"norm_topk_prob": False}, "norm_topk_prob is False"),
    ("qwen3_5_moe", {"attn_output_gate": False}, "attn_output_gate is False"),
    ("qwen3_next", {"hidden_act": "gelu"}, "hidden_act is 'gelu'"),
    ("qwen3_next", {"attn_output_gate": False}, "attn_output_gate is False"),
    ("qwen3_next", {"num_experts_per_tok": 6}, "top_k: 6 of 5 experts cannot be chosen"),
    ("qwen3_next", {"rope_scaling": {"type": "yarn"}}, "ssm does not support scaled rotary positions"),
    ("qwen3_next", {"rope_parameters": {"type": "yarn"}}, "ssm does not support scaled rotary positions"),
    ("kimi_linear", {"hidden_act": "gelu"}, "hidden_act is 'gelu'"),
    ("kimi_linear", {"attention_bias": True}, "attention_bias is True"),
    ("kimi_linear", {"tie_word_embeddings": True}, "tie_word_embeddings is True"),
    ("kimi_linear", {"q_lora_rank": 8}, "q_lora_rank is 8"),
    ("kimi_linear", {"num_expert_group": 5}, "num_expert_group is 5"),
    ("kimi_linear", {"n_group": 5}, "num_expert_group is 5"),
    ("kimi_linear", {"topk_group": 2}, "topk_group is 2"),
    ("kimi_linear", {"moe_layer_freq": 2}, "moe_layer_freq is 2"),
    ("kimi_linear", {"moe_router_activation_func": "softmax"}, "moe_router_activation_func is 'softmax'"),
    ("kimi_linear", {"mla_use_nope": False}, "mla_use_nope is False"),
    ("kimi_linear", {"num_key_value_heads": 2}, "num_key_value_heads is 2; ssm supports only num_attention_heads"),
    ("kimi_linear", {"mlp_layer_types": ["dense"]}, "mlp_layer_types is ['dense'], expected 4 of dense and sparse"),
    ("kimi_linear", {"layer_types": 4 * ["full_attention"]}, "expected 4 of linear_attention and full_attention"),
    ("kimi_linear", {"num_experts_per_token": 6}, "top_k: 6 of 5 experts cannot be chosen"),
    ("mamba_ssm", {"attn_layer_idx": [1], "attn_cfg": {"num_heads": 2}},
     "attn_cfg.causal is False; ssm supports only True"),
    ("mamba_ssm", {"attn_layer_idx": [1], "attn_cfg": {"causal": True, "num_heads": 2, "mlp_dim": 9}},
     "attn_cfg.mlp_dim is 9"),
    ("mamba_ssm", {"attn_layer_idx": [1], "attn_cfg": {"causal": True, "num_heads": 2, "sink": 4}},
     "attn_cfg has unknown keys: sink"),
    ("mamba_ssm", {"attn_layer_idx": [1], "attn_cfg": {"causal": True}}, "config.json: has no num_heads"),
    ("mamba_ssm", {"attn_layer_idx": [3], "attn_cfg": {"causal": True, "num_heads": 2}}, "layers are numbered 0 to 2"),
    ("mamba_ssm", {"ssm_cfg": {"layer": "Mamba3"}},
     "models (ssm cannot read Mamba-3: its files do not say which function computes A"),
    ("mamba_ssm", {"ssm_cfg": {"layer": "Mamba4"}},
     "ssm_cfg.layer is 'Mamba4'; ssm supports only Mamba1 and Mamba2"),
    ("mamba_ssm", {"ssm_cfg": {"layer": "Mamba2", "norm_before_gate": True}}, "ssm_cfg.norm_before_gate is True"),
    ("mamba_ssm", {"ssm_cfg": {"bias": True}}, "ssm_cfg.bias is True"),
]  # fmt: skip


@pytest.mark.parametrize(("key", "changes", "says"), REFUSED, ids=[f"{key}, {says}" for key, _, says in REFUSED])
def test_unsupported_values_are_refused_in_one_line(key: str, changes: dict[str, Any], says: str) -> None:
    with pytest.raises((CheckpointError, ConfigError)) as error:
        FORMATS[key].spec(CONFIGS[key] | {"vocab_size": 37} | changes, "tiny", "config.json")
    assert str(error.value).startswith("config.json: ")
    assert says in str(error.value)
    assert "\n" not in str(error.value)


def test_a_field_that_only_initializes_needs_no_key() -> None:
    mixer = {"kind": "rwkv6", "head_dim": 8, "norm_eps": 1e-5}
    rest: dict[str, Any] = {"ffn": {"kind": "rwkv_channel_mix", "d_hidden": 64}, "norm": "layer"}
    plain, slow = (tiny.spec(mixer=mixer | more, **rest) for more in ({}, {"decay_range": (1e-5, 1e-4)}))
    form = FORMATS["fla_rwkv6"]
    assert form.config_of(slow, 37) == form.config_of(plain, 37)


def test_the_interval_of_attention_layers_without_a_list() -> None:
    config = {key: value for key, value in qwen.SIZES.items() if key != "layer_types"} | {"num_hidden_layers": 8}
    spec, _ = FORMATS["qwen3_5"].spec(config | {"vocab_size": 37}, "tiny", "config.json")
    assert [mixer.kind for mixer in spec.mixers()] == 2 * [*3 * ["gated_deltanet"], "attention"]


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
    """The same layers as in transformers, before and after an export."""
    config = CONFIGS["qwen3_next"] | {"vocab_size": 37} | changes
    spec, vocab_size = FORMATS["qwen3_next"].spec(config, "tiny", "config.json")
    assert [i for i, ffn in enumerate(spec.ffns()) if ffn is not None and ffn.kind == "gated_mlp"] == dense
    model = qwen3_next.Qwen3NextModel(qwen3_next.Qwen3NextConfig(**config))
    assert [i for i, layer in enumerate(model.layers) if isinstance(layer.mlp, qwen3_next.Qwen3NextMLP)] == dense
    assert FORMATS["qwen3_next"].config_of(spec, vocab_size)["mlp_only_layers"] == dense


def test_moonshots_own_config() -> None:
    """It counts layers from 1."""
    config = KIMI | {"vocab_size": 37}
    spec, vocab_size = FORMATS["kimi_linear"].spec(config, "tiny", "config.json")
    assert [mixer.kind for mixer in spec.mixers()] == ["kda", "kda", "attention", "kda"]
    assert [ffn.kind for ffn in spec.ffns() if ffn is not None] == ["gated_mlp", "experts", "experts", "experts"]
    written = FORMATS["kimi_linear"].config_of(spec, vocab_size)
    theirs = kimi.KimiLinearConfig(**config)
    assert (written["layer_types"], written["mlp_layer_types"]) == (theirs.layer_types, theirs.mlp_layer_types)


def test_other_names_of_keys() -> None:
    """transformers accepts the names of its own config classes and those that it writes. The latter win."""
    names = {"num_local_experts": 3, "num_experts_per_tok": 1, "n_shared_experts": 2, "norm_topk_prob": False}
    config = {key: value for key, value in KIMI.items() if key not in ("num_experts", "num_experts_per_token")}
    spec, _ = FORMATS["kimi_linear"].spec(config | names | {"vocab_size": 37}, "tiny", "config.json")
    experts: Any = spec.ffn
    assert (experts.n_experts, experts.top_k, experts.d_shared, experts.normalize) == (3, 1, 24, False)
    both: Any = FORMATS["kimi_linear"].spec(KIMI | names | {"vocab_size": 37}, "tiny", "config.json")[0].ffn
    theirs = kimi.KimiLinearConfig(**KIMI | names)
    assert (both.n_experts, both.top_k) == (5, 2) == (theirs.num_local_experts, theirs.num_experts_per_tok)
    gemma = {"hidden_size": 32, "num_hidden_layers": 3, "num_attention_heads": 4, "intermediate_size": 64}
    spec, _ = FORMATS["recurrent_gemma"].spec(gemma | {"sliding_window": 5, "vocab_size": 37}, "tiny", "config.json")
    attention: Any = spec.mixers()[2]
    assert attention.window == 5


@pytest.mark.parametrize(
    ("key", "config", "model", "billions", "active"),
    [
        ("qwen3_next", qwen3_next.Qwen3NextConfig, qwen3_next.Qwen3NextForCausalLM, (80, 0.01), (3, 4)),
        ("kimi_linear", kimi.KimiLinearConfig, kimi.KimiLinearForCausalLM, (48, 0.03), (3, 3.5)),
    ],
    ids=["Qwen3-Next 80B-A3B", "Kimi Linear 48B-A3B"],
)
def test_the_published_size(
    key: str, config: Any, model: Any, billions: tuple[float, float], active: tuple[float, float]
) -> None:
    """transformers' defaults have as many parameters as our spec. A token needs two operations for each active one."""
    published = config()
    spec, vocab_size = FORMATS[key].spec(published.to_dict(), "published", "config.json")
    with torch.device("meta"):
        wanted = sum(parameter.numel() for parameter in model(published).parameters())
    assert parameter_count(spec, vocab_size) == wanted
    assert wanted == pytest.approx(billions[0] * 1e9, rel=billions[1])
    assert active[0] * 1e9 < operations_per_token(spec, vocab_size, context=1) / 2 < active[1] * 1e9
