"""Extensions of hybrids of recurrence and attention."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from extension.world import QUICK
from models.formats import hf, qwen
from small import import_checkpoint, make_store, model_spec, run_spec, write_checkpoint
from transformers.models.kimi_linear import modeling_kimi_linear
from transformers.models.qwen3_5 import modeling_qwen3_5

from ssm.extension import extend
from ssm.models.weights_file import load_model
from ssm.specs.training import RunSpec
from ssm.training.loop import train

pytestmark = pytest.mark.usefixtures("without_plots")

QWEN: dict[str, Any] = {  # a memory that 16 tokens do not fill, and that hardly forgets
    "mixer": {
        "kind": "gated_deltanet", "n_heads": 2, "key_dim": 64, "value_dim": 64, "norm_eps": 1e-6,
        "a_range": [1e-3, 1e-3], "dt_range": [0.01, 0.01],
    },
    "mixer_at": {
        "1": {"kind": "attention", "n_heads": 2, "head_dim": 16, "qk_norm": True, "gate": True, "rotary_pct": 0.25}
    },
    "norm": "rms_from_one",
    "norm_eps": 1e-6,
}  # fmt: skip
HYBRIDS: dict[str, dict[str, Any]] = {
    "mamba_ssm": {
        "mixer": model_spec(mixer={"d_state": 16, "a_range": [0.05, 0.05], "dt_range": [0.1, 0.1]}).mixer.content(),
        "mixer_at": {"1": {"kind": "attention", "n_heads": 2}},
    },
    "qwen3_5": QWEN | {"ffn": {"kind": "gated_mlp", "d_hidden": 64}},
    "kimi_linear": {
        "mixer": QWEN["mixer"] | {"kind": "kda", "gate_rank": 64, "gate_bias": False, "norm_eps": 1e-5},
        "mixer_at": {
            "1": {
                "kind": "attention", "n_heads": 2, "head_dim": 16, "rotary_pct": 0.0, "latent_dim": 8, "shared_dim": 4,
                "value_dim": 8,
            }
        },
        "ffn": {
            "kind": "experts", "n_experts": 4, "top_k": 2, "d_hidden": 32, "d_shared": 32, "scores": "sigmoid",
            "shared_gate": False,
        },
        "tie_embeddings": False,
    },
}  # fmt: skip


@pytest.mark.exhaustive
@pytest.mark.parametrize(("form", "hybrid"), HYBRIDS.items(), ids=HYBRIDS)
def test_a_hybrid_is_extended(
    form: str, hybrid: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = make_store(tmp_path, documents=60, words=900)
    run = run_spec(store.spec, budget={"steps": 300}, batch_tokens=512)
    run = RunSpec.parse(run.content() | {"model": model_spec(d_model=32).content() | hybrid}, "test")
    train(run, store, tmp_path / "run", torch.device("cpu"))
    trained, _ = load_model(tmp_path / "run" / "model.safetensors")
    theirs = write_checkpoint(trained, form, tmp_path / "theirs")
    out = tmp_path / "out"
    # 160 steps: after 40, processors that round differently disagree on whether a mixture of experts has gained
    result = extend(theirs, [str(tmp_path / "texts")], out, **QUICK | {"steps": 160})
    assert result["outcome"] in ("repaired", "improved")
    assert result["change"]["paired_ratio"]["high"] < 0.8
    page = (out / "index.html").read_text()
    said = f"all {trained.spec.n_layers} but 1: attention, whose cache starts empty, and its positions at 0"
    assert said in page
    assert "it has attention, which is given no state" in page
    repaired = import_checkpoint(out / "model")
    assert (repaired.format.key, repaired.spec.endless) == (form, (1,))
    if form != "mamba_ssm":  # whose own library needs a GPU
        for module in (modeling_qwen3_5, modeling_kimi_linear):
            qwen.plain_rule(module, monkeypatch)
        tokens = torch.arange(2 * 40).view(2, 40) % 200
        with torch.no_grad():
            assert (repaired.model(tokens)[0] - hf.run(hf.load(out / "model"), tokens)).abs().max() < 1e-4
