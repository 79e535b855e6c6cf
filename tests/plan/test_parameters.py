"""Parameters and operations of a spec, compared with built models."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from plan import own

from ssm.models.backbone import LanguageModel
from ssm.plan.parameters import operations_per_token, parameter_count
from ssm.specs.model import ModelSpec

VOCABULARY = 250  # not a multiple of 8


def named_models() -> dict[str, ModelSpec]:
    """Every model of config/models.yaml at the scale paper; at most two layers, if all layers are equal."""
    entries = own.library("paper").models.entries
    models = {name: model for name, model in entries.items() if isinstance(model, ModelSpec)}
    return {
        name: model if model.mixer_at or model.ffn_at else model.model_copy(update={"n_layers": min(2, model.n_layers)})
        for name, model in models.items()
    }


def model(**changes: Any) -> ModelSpec:
    return ModelSpec.model_validate({"name": "m", "d_model": 24, "n_layers": 3, "peak_lr": 1e-3} | changes)


def built(spec: ModelSpec) -> int:
    with torch.device("meta"):
        return LanguageModel(spec, VOCABULARY).parameters_count


def test_the_counts_of_all_named_models_are_exact() -> None:
    wrong = {
        name: (parameter_count(spec, VOCABULARY), built(spec))
        for name, spec in named_models().items()
        if parameter_count(spec, VOCABULARY) != built(spec)
    }
    assert not wrong


EXPERTS = {"kind": "experts", "n_experts": 5, "top_k": 2, "d_hidden": 7, "d_shared": 9}
VARIANTS: list[dict[str, Any]] = [
    {"mixer": {"kind": "attention", "n_heads": 4, "n_kv_heads": 2, "bias": True, "window": 5}},
    {"mixer": {"kind": "attention", "n_heads": 4, "head_dim": 10, "rotary_pct": 0.4}},
    {"mixer": {"kind": "attention", "n_heads": 4, "n_kv_heads": 1, "qk_norm": True, "gate": True}},
    {"mixer": {"kind": "attention", "n_heads": 4, "n_kv_heads": 2, "out_bias": True, "d_conv": 3}},
    {"mixer": {"kind": "attention", "n_heads": 4, "latent_dim": 9, "shared_dim": 2, "value_dim": 7, "rotary_pct": 0}},
    {"mixer": {"kind": "dss", "d_state": 6}},
    {"mixer": {"kind": "gla", "n_heads": 2, "key_dim": 5, "value_dim": 7, "gate_rank": 3}},
    {"mixer": {"kind": "gla", "n_heads": 2, "gate_rank": 3, "decay": "constant"}},
    {"mixer": {"kind": "gru"}, "norm": "layer", "embedding_norm": True},
    {"mixer": {"kind": "h3", "d_state": 6, "d_shift": 5, "head_dim": 3}},
    {"mixer": {"kind": "linear_attention", "n_heads": 2, "feature_map": "hedgehog", "key_dim": 5, "value_dim": 7}},
    {"mixer": {"kind": "linear_attention", "n_heads": 2, "feature_map": "favor", "n_features": 9}},
    {"mixer": {"kind": "mamba1", "d_state": 6, "dt_rank": 3, "polarize": "both"}},
    {"mixer": {"kind": "mamba1", "d_state": 6, "polarize": "one", "polarized_size": "matched", "d_conv": 3}},
    {"mixer": {"kind": "mamba1", "d_state": 6, "selection_norm_eps": 1e-6}},
    {"mixer": {"kind": "mamba2", "d_state": 6, "head_dim": 8, "expand": 3, "n_groups": 3, "d_conv": 3}},
    {"mixer": {"kind": "mamba2", "d_state": 6, "head_dim": 8, "decay": "constant"}},
    {"mixer": {"kind": "retnet", "n_heads": 2, "key_dim": 6, "value_dim": 5}},
    {"mixer": {"kind": "rglru", "blocks": 4, "width": 40, "d_conv": 3}, "tie_embeddings": False, "vocab_multiple": 8},
    {"mixer": {"kind": "rglru", "blocks": 4, "width": 40, "decay": "constant"}},
    {"mixer": {"kind": "rwkv4"}, "ffn": {"kind": "rwkv_channel_mix", "d_hidden": 31}},
    {"mixer": {"kind": "rwkv6", "head_dim": 8, "shift_rank": 3, "decay_rank": 5}},
    {"mixer": {"kind": "s4d", "d_state": 6, "decay": "input_dependent"}},
    {"mixer": {"kind": "s4d", "d_state": 6}, "ffn": {"kind": "mlp", "d_hidden": 31, "bias": True}},
    {"mixer": {"kind": "s5", "d_state": 12, "blocks": 2}, "ffn": {"kind": "gated_mlp", "d_hidden": 31, "bias": True}},
    {"mixer": {"kind": "deltanet", "n_heads": 2, "value_dim": 5, "gate": True, "d_conv": 3}},
    {"mixer": {"kind": "gated_deltanet", "n_heads": 4, "n_key_heads": 2, "key_dim": 5, "gate": False}},
    {"mixer": {"kind": "gated_deltanet", "n_heads": 2, "decay": "none"}},
    {"mixer": {"kind": "kda", "n_heads": 4, "n_key_heads": 2, "value_dim": 5, "gate_rank": 3}},
    {"mixer": {"kind": "kda", "n_heads": 2, "gate_bias": False}},
    {"mixer": {"kind": "rwkv7", "head_dim": 8, "decay_rank": 2, "rate_rank": 3, "gate_rank": 5, "value_rank": 4}},
    {"mixer": {"kind": "gru"}, "mixer_at": {1: {"kind": "rwkv4"}}, "ffn": {"kind": "mlp", "d_hidden": 5}},
    {"mixer": {"kind": "gru"}, "ffn": {"kind": "mlp", "d_hidden": 5}, "ffn_at": {"1": EXPERTS}, "norm": "layer"},
    {"mixer": {"kind": "gru"}, "ffn_at": {2: EXPERTS}},
]


@pytest.mark.parametrize("changes", VARIANTS, ids=lambda changes: changes["mixer"]["kind"])
def test_the_counts_of_every_kind_and_option_are_exact(changes: dict[str, Any]) -> None:
    spec = model(**changes)
    assert parameter_count(spec, VOCABULARY) == built(spec)


def test_operations_are_two_for_a_parameter_and_six_for_a_state() -> None:
    recurrent = model(mixer={"kind": "gru"})
    expected = 2 * parameter_count(recurrent, VOCABULARY) + 6 * 3 * 24
    assert (
        operations_per_token(recurrent, VOCABULARY, 1000) == operations_per_token(recurrent, VOCABULARY, 9) == expected
    )
    untied = model(mixer={"kind": "gru"}, tie_embeddings=False)  # one of the two matrices is only looked up
    assert operations_per_token(untied, VOCABULARY, 9) == expected


def test_unused_experts_take_no_operations() -> None:
    one, all_five = (model(mixer={"kind": "gru"}, ffn=EXPERTS | {"top_k": k}) for k in (1, 5))
    assert operations_per_token(all_five, VOCABULARY, 9) == 2 * parameter_count(one, VOCABULARY) + 6 * 3 * 24
    apart = operations_per_token(all_five, VOCABULARY, 9) - operations_per_token(one, VOCABULARY, 9)
    assert apart == 3 * 4 * 2 * (3 * 24 * 7)  # layers, experts, multiplication and addition, weights


def test_operations_of_attention_grow_with_the_context_up_to_its_window() -> None:
    full, window = (model(mixer={"kind": "attention", "n_heads": 4, "window": width}) for width in (None, 10))
    fixed = 2 * parameter_count(full, VOCABULARY)
    assert operations_per_token(full, VOCABULARY, 99) == fixed + 3 * 4 * 24 * 50
    assert operations_per_token(window, VOCABULARY, 99) == fixed + 3 * 4 * 24 * 10
