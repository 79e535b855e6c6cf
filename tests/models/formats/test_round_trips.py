"""Round trips of every format of transformers and fla: one row for each, with variants of its config.

test_mamba_ssm.py has the round trips of mamba_ssm, whose models are built by hand.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from models.formats import hf, qwen

from ssm.models.load import context_of
from ssm.specs.model import ModelSpec


class Format(NamedTuple):
    """A class of transformers ("hf") or fla, with its sizes and variants."""

    library: str
    kind: str
    key: str
    sizes: dict[str, Any]
    variants: dict[str, dict[str, Any]]
    fits: Callable[[ModelSpec, dict[str, Any]], bool]  # whether a spec fits the changes of a variant
    context: int | None = None


SMALL = {"hidden_size": 32, "num_hidden_layers": 3}
FLA = SMALL | {"num_heads": 2}
APART = {"fuse_norm": False, "fuse_swiglu": False}
ODD = {"num_heads": 3, "hidden_size": 36, "intermediate_size": 40, "tie_word_embeddings": True, "norm_eps": 1e-3}
KIMI = {
    "hidden_size": 32, "num_hidden_layers": 3, "intermediate_size": 40, "num_attention_heads": 4,
    "num_key_value_heads": 4, "kv_lora_rank": 9, "qk_nope_head_dim": 8, "qk_rope_head_dim": 6, "v_head_dim": 7,
    "linear_num_heads": 3, "linear_head_dim": 5, "linear_conv_kernel_dim": 3, "max_position_embeddings": 128,
    "layer_types": ["linear_attention", "linear_attention", "full_attention"], "num_local_experts": 5,
    "num_experts_per_tok": 2, "moe_intermediate_size": 12, "n_group": 1, "topk_group": 1, "pad_token_id": None,
    "bos_token_id": None, "eos_token_id": None,
}  # fmt: skip
RANKS = {"decay_low_rank_dim": 3, "a_low_rank_dim": 4, "v_low_rank_dim": 5, "gate_low_rank_dim": 6}


def of(kind: str) -> Callable[[ModelSpec, dict[str, Any]], bool]:
    return lambda spec, _: bool(spec.mixer.kind == kind)


def hybrid_of(kind: str) -> Callable[[ModelSpec, dict[str, Any]], bool]:
    kinds = {"linear_attention": kind, "full_attention": "attention"}
    return lambda spec, changes: (
        [mixer.kind for mixer in spec.mixers()]
        == [kinds[layer] for layer in changes.get("layer_types", qwen.SIZES["layer_types"])]
    )


FORMATS = (
    Format(
        "hf", "Mamba", "mamba", SMALL,
        {
            "tied": {},
            "untied": {"tie_word_embeddings": False},
            "odd sizes": {"state_size": 5, "expand": 3, "conv_kernel": 2, "time_step_rank": 3,
                          "layer_norm_epsilon": 1e-3},
        },
        of("mamba1"),
    ),
    Format(
        "hf", "FalconMamba", "falcon_mamba", SMALL,
        {
            "tied": {},
            # tiiuae/falcon-mamba-7b: `expand` is not the ratio of its widths. A large epsilon has an effect.
            "published": {"tie_word_embeddings": False, "expand": 16, "intermediate_size": 64, "time_step_rank": 3,
                          "mixer_rms_eps": 0.5},
        },
        lambda spec, changes: spec.mixer.expand == 2
        and spec.mixer.selection_norm_eps == changes.get("mixer_rms_eps", 1e-6),
    ),
    Format(
        "hf", "Mamba2", "mamba2",
        SMALL | {"num_heads": 4, "head_dim": 16, "state_size": 8, "n_groups": 2, "chunk_size": 8},
        {
            "untied": {},
            "tied": {"tie_word_embeddings": True},
            "one group, limited dt": {"n_groups": 1, "time_step_limit": (0.05, 0.5), "conv_kernel": 3},
            "no lower dt": {"time_step_limit": (0.1, float("inf"))},
        },
        of("mamba2"),
    ),
    Format(
        "hf", "Rwkv", "rwkv", SMALL | {"context_length": 96},
        {
            "untied": {},
            "tied, narrow": {"tie_word_embeddings": True, "intermediate_size": 40},
            "rescaled at inference": {"rescale_every": 2},
        },
        of("rwkv4"),
        96,
    ),
    Format(
        "hf", "RecurrentGemma", "recurrent_gemma",
        {"hidden_size": 48, "num_hidden_layers": 4, "num_attention_heads": 4, "num_key_value_heads": 1, "lru_width": 32,
         "intermediate_size": 96, "attention_window_size": 8},
        {
            "published": {},
            "untied, biased, no sharing": {"tie_word_embeddings": False, "attention_bias": True,
                                           "num_key_value_heads": None},
            "low cap": {"logits_soft_cap": 2.0, "conv1d_width": 2, "block_types": ["attention", "recurrent"]},
        },
        lambda spec, changes: sum(mixer.kind == "attention" for mixer in spec.mixers())
        == (2 if "block_types" in changes else 1),
    ),
    Format(
        "hf", "GPTNeoX", "gpt_neox",
        {"hidden_size": 48, "num_hidden_layers": 3, "num_attention_heads": 3, "intermediate_size": 40},
        {
            "Pythia's": {},
            "one after the other, all rotated": {"use_parallel_residual": False, "rotary_pct": 1.0,
                                                 "rotary_emb_base": 500},
            "no bias, tied": {"attention_bias": False, "tie_word_embeddings": True, "layer_norm_eps": 1e-3},
            "gelu by tanh": {"hidden_act": "gelu_new"},
        },
        lambda spec, changes: spec.parallel_residual is changes.get("use_parallel_residual", True)
        and spec.mixer.rotary_pct == changes.get("rotary_pct", 0.25),
        2048,
    ),
    Format(
        "hf", "Mistral", "mistral", SMALL | {"num_attention_heads": 4, "intermediate_size": 40},
        {
            "the first release's": {"num_key_value_heads": 2, "sliding_window": 6},
            "without a window, heads of another width": {"num_key_value_heads": 1, "sliding_window": None,
                                                         "head_dim": 12},
            "tied, another base": {"num_key_value_heads": 4, "tie_word_embeddings": True, "rms_norm_eps": 1e-3,
                                   "rope_parameters": {"rope_type": "default", "rope_theta": 500.0}},
        },
        lambda spec, changes: spec.mixer.window == changes.get("sliding_window", 4096)
        and spec.mixer.rotary_base == changes.get("rope_parameters", {}).get("rope_theta", 10_000)
        and spec.mixer.n_kv_heads == changes["num_key_value_heads"],
        4096 * 32,
    ),
    Format(
        "hf", "Qwen3_5", "qwen3_5", qwen.SIZES,
        {
            "grouped": {},
            "biases, all rotated, tied": {
                "attention_bias": True, "tie_word_embeddings": True, "rms_norm_eps": 1e-3, "linear_num_value_heads": 2,
                "layer_types": ["linear_attention", "full_attention", "linear_attention"],
                "rope_parameters": {"rope_type": "default", "rope_theta": 100.0, "partial_rotary_factor": 1.0},
            },
        },
        hybrid_of("gated_deltanet"),
        128,
    ),
    Format(
        "hf", "Qwen3_5Moe", "qwen3_5_moe", qwen.SIZES | qwen.EXPERTS, {"": {}},
        lambda spec, _: {ffn.kind for ffn in spec.ffns()} == {"experts"},
        128,
    ),
    Format(
        "hf", "Qwen3Next", "qwen3_next", qwen.SIZES | qwen.EXPERTS,
        {
            "grouped": {},
            "a dense layer, raw weights, tied": {
                "mlp_only_layers": [1], "norm_topk_prob": False, "tie_word_embeddings": True,
                "linear_num_value_heads": 2, "attention_bias": True,
            },
        },
        lambda spec, changes: [i for i, ffn in enumerate(spec.ffns()) if ffn.kind == "gated_mlp"]
        == changes.get("mlp_only_layers", []),
        128,
    ),
    Format(
        "hf", "KimiLinear", "kimi_linear", KIMI,
        {
            "published": {},
            "one layer with experts, raw weights, two shared": {
                "mlp_layer_types": ["dense", "sparse", "dense"], "norm_topk_prob": False, "n_shared_experts": 2,
                "rms_norm_eps": 1e-3, "layer_types": ["linear_attention", "full_attention", "linear_attention"],
            },
        },
        hybrid_of("kda"),
        128,
    ),
    Format(
        "fla", "Mamba", "fla_mamba", SMALL,
        {
            "untied": {},
            "odd sizes, tied": {"state_size": 5, "expand": 3, "conv_kernel": 2, "dt_rank": 5, "norm_eps": 1e-3,
                                "tie_word_embeddings": True},
        },
        of("mamba1"),
    ),
    Format(
        "fla", "Mamba2", "fla_mamba2", SMALL | {"head_dim": 16, "state_size": 8, "chunk_size": 8},
        {
            "one group": {},
            "as many groups as heads, limited dt, tied": {"n_groups": 4, "dt_limit": (0.05, 0.5), "conv_kernel": 3,
                                                          "tie_word_embeddings": True},
        },
        lambda spec, changes: spec.mixer.dt_limit == changes.get("dt_limit", (0.0, None)),
    ),
    Format(
        "fla", "GLA", "fla_gla", FLA | {"max_position_embeddings": 128},
        {"fused": {}, "norm and gate apart": APART, "odd sizes, tied": ODD | {"expand_k": 1.5, "expand_v": 0.5}},
        of("gla"),
        128,
    ),
    Format(
        "fla", "RetNet", "fla_retnet", FLA | {"max_position_embeddings": 128},
        {"fused": {}, "norm and gate apart": APART, "odd sizes, tied": ODD | {"expand_k": 0.5, "expand_v": 1.5}},
        of("retnet"),
        128,
    ),
    Format(
        "fla", "RWKV6", "fla_rwkv6", FLA | {"expand_k": 1.0, "expand_v": 1.0, "max_position_embeddings": 128},
        {
            "fused": {},
            "norms apart, none first": {"fuse_norm": False, "norm_first": False},
            "odd ranks, tied": {"proj_low_rank_dim": 3, "gate_low_rank_dim": 5, "intermediate_size": 40,
                                "tie_word_embeddings": True, "norm_eps": 1e-3},
        },
        of("rwkv6"),
        128,
    ),
    Format(
        "fla", "RWKV7", "fla_rwkv7", SMALL | RANKS | {"head_dim": 16, "max_position_embeddings": 128},
        {
            "fused": {},
            "norms apart, none first": {"fuse_norm": False, "norm_first": False},
            "odd sizes, tied": {"intermediate_size": 40, "tie_word_embeddings": True, "norm_eps": 1e-3, "head_dim": 8},
        },
        lambda spec, _: [mixer.value_rank for mixer in spec.mixers()] == [None, 5, 5],
        128,
    ),
    Format(
        "fla", "DeltaNet", "fla_deltanet", FLA | {"max_position_embeddings": 128},
        {
            "": {},
            "gate, tied": ODD | {"expand_k": 0.5, "expand_v": 1.5, "use_gate": True, "conv_size": 3,
                                 "allow_neg_eigval": True},
        },
        of("deltanet"),
        128,
    ),
    Format(
        "fla", "GatedDeltaNet", "fla_gated_deltanet", FLA | {"max_position_embeddings": 128},
        {
            "": {"head_dim": 12},
            "grouped, no gate": {"num_v_heads": 4, "head_dim": 6, "expand_v": 1.5, "use_gate": False,
                                 "fuse_norm": False},
            "sigmoid": {"num_heads": 1, "head_dim": 7, "expand_v": 1.0, "output_gate_activation": "sigmoid",
                        "allow_neg_eigval": True},
        },
        of("gated_deltanet"),
        128,
    ),
    Format(
        "fla", "KDA", "fla_kda", FLA | {"max_position_embeddings": 128},
        {
            "": {"head_dim": 8},
            "grouped": {"num_heads": 1, "num_v_heads": 3, "head_dim": 6, "expand_v": 0.5, "conv_size": 2,
                        "norm_eps": 1e-3},
        },
        of("kda"),
        128,
    ),
)  # fmt: skip
ROWS = {f"{form.key}, {name}": (form, changes) for form in FORMATS for name, changes in form.variants.items()}


@pytest.mark.parametrize(("form", "changes"), ROWS.values(), ids=ROWS)
def test_round_trip(
    form: Format,
    changes: dict[str, Any],
    tmp_path: Path,
    request: pytest.FixtureRequest,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    library: Any = hf if form.library == "hf" else request.getfixturevalue("fla")  # its import takes seconds
    peer = library.made(form.kind, **(form.sizes | changes))
    qwen.plain_rule(sys.modules[type(peer).__module__], monkeypatch)
    imported = library.check(peer, tmp_path)
    assert imported.format.key == form.key
    assert form.fits(imported.spec, changes)
    assert context_of(imported.source.config) == form.context
