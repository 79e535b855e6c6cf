"""transformers' Qwen3.5 text models, in and out: Gated DeltaNet between attention with norms and a gate; experts."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from models.formats import hf, qwen
from models.formats.qwen import SIZES
from transformers.models.qwen3_5 import modeling_qwen3_5 as theirs
from transformers.models.qwen3_5_moe import modeling_qwen3_5_moe as theirs_with_experts

from ssm.base.errors import CheckpointError
from ssm.models.formats import Format
from ssm.models.formats.qwen3_5 import QWEN3_5
from ssm.models.formats.qwen3_5_moe import QWEN3_5_MOE
from ssm.models.load import context_of

VARIANTS: dict[str, dict[str, Any]] = {
    "grouped": {},
    "biases, rotated whole, tied": {
        "attention_bias": True, "tie_word_embeddings": True, "rms_norm_eps": 1e-3, "linear_num_value_heads": 2,
        "layer_types": ["linear_attention", "full_attention", "linear_attention"],
        "rope_parameters": {"rope_type": "default", "rope_theta": 100.0, "partial_rotary_factor": 1.0},
    },
}  # fmt: skip


@pytest.mark.parametrize("changes", VARIANTS.values(), ids=VARIANTS)
def test_round_trip(changes: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    qwen.plain_rule(theirs, monkeypatch)
    imported = hf.check(hf.made("Qwen3_5", **(SIZES | changes)), tmp_path)
    assert imported.format.key == "qwen3_5"
    kinds = {"gated_deltanet": "linear_attention", "attention": "full_attention"}
    assert [kinds[mixer.kind] for mixer in imported.spec.mixers()] == (SIZES | changes)["layer_types"]
    assert context_of(imported.source.config) == 128


def test_round_trip_with_experts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    qwen.plain_rule(theirs_with_experts, monkeypatch)
    peer = qwen.loaded("Qwen3_5Moe", tmp_path / "made", **(SIZES | qwen.EXPERTS))
    imported = hf.check(peer, tmp_path)
    assert imported.format.key == "qwen3_5_moe"
    assert {ffn.kind for ffn in imported.spec.ffns() if ffn is not None} == {"experts"}


def test_heads_of_more_tokens_go_home_as_they_came(tmp_path: Path) -> None:
    qwen.check_heads_of_more_tokens("Qwen3_5", tmp_path, **SIZES)


def test_layers_go_by_their_interval_where_they_are_not_listed() -> None:
    sizes = {key: value for key, value in SIZES.items() if key != "layer_types"} | {"num_hidden_layers": 8}
    found, _ = QWEN3_5.spec(sizes | {"vocab_size": 37}, "tiny", "config.json")
    assert [mixer.kind for mixer in found.mixers()] == 2 * [*3 * ["gated_deltanet"], "attention"]
    with pytest.raises(CheckpointError, match=r"layer_types is .*sliding"):
        QWEN3_5.spec(SIZES | {"vocab_size": 37, "layer_types": 3 * ["sliding_attention"]}, "tiny", "config.json")


@pytest.mark.parametrize(
    ("form", "changes", "says"),
    [
        (QWEN3_5, {"hidden_act": "gelu"}, "hidden_act is 'gelu'"),
        (QWEN3_5, {"attn_output_gate": False}, "attn_output_gate is False"),
        (QWEN3_5, {"num_experts": 8}, "num_experts is 8; ssm supports only None or 0 for transformers' Qwen3.5"),
        (QWEN3_5_MOE, {"norm_topk_prob": False}, "norm_topk_prob is False"),
        (QWEN3_5_MOE, {"attn_output_gate": False}, "attn_output_gate is False"),
    ],
    ids=lambda value: value.key if isinstance(value, Format) else str(value),
)
def test_refused(form: Format, changes: dict[str, Any], says: str) -> None:
    with pytest.raises(CheckpointError) as error:
        form.spec(SIZES | {"vocab_size": 37} | changes, "tiny", "config.json")
    assert says in str(error.value)
    assert "\n" not in str(error.value)
