"""Small configs of transformers' Qwen models, and their recurrence on the CPU."""

from __future__ import annotations

import inspect
from types import ModuleType

import pytest

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
    """Use transformers' recurrence in PyTorch. fla's kernels, which replace it if fla is installed, need a GPU."""
    for name, function in vars(theirs).copy().items():
        if name.endswith(("_gated_delta_rule", "_kimi_delta_attention")):
            monkeypatch.setattr(theirs, name, inspect.unwrap(function))
