"""A hybrid of recurrence and attention, from start to repaired checkpoint and back."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from extension.world import QUICK
from small import make_store, model_spec, run_spec

from ssm.extension import extend
from ssm.models.checkpoint import load_model
from ssm.models.formats import export_checkpoint, import_checkpoint
from ssm.specs.training import RunSpec
from ssm.training.loop import train

pytestmark = pytest.mark.usefixtures("without_pictures")


@pytest.mark.exhaustive
def test_a_hybrid_of_mamba_ssm_is_extended(tmp_path: Path) -> None:
    store = make_store(tmp_path, documents=60, words=900)
    slow = {"d_state": 16, "a_range": [0.05, 0.05], "dt_range": [0.1, 0.1]}
    run = run_spec(store.spec, budget={"steps": 300}, batch_tokens=512)
    model = model_spec(mixer=slow, d_model=32).content() | {"mixer_at": {"1": {"kind": "attention", "n_heads": 2}}}
    run = RunSpec.parse(run.content() | {"model": model}, "test")
    train(run, store, tmp_path / "run", torch.device("cpu"))
    trained, _ = load_model(tmp_path / "run" / "model.safetensors")
    theirs = export_checkpoint(trained, "mamba_ssm", tmp_path / "theirs")
    out = tmp_path / "out"
    result = extend(theirs, [str(tmp_path / "texts")], out, **QUICK | {"steps": 10})
    assert result["outcome"] in ("repaired", "improved")
    assert result["change"]["paired_ratio"]["high"] < 0.8
    page = (out / "index.html").read_text()
    said = f"all {trained.spec.n_layers} but 1: attention, whose cache starts empty, and its positions at 0"
    assert said in page
    assert "it has attention, which is given no state" in page
    assert import_checkpoint(out / "model").spec.endless == (1,)
