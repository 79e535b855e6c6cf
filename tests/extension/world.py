"""A checkpoint of another library that breaks beyond its context, and its text."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from small import make_store, model_spec, run_spec, write_checkpoint

from ssm.extension import extend
from ssm.models.weights_file import load_model
from ssm.training.loop import train

CARD = "# A model\n\nOf a stranger.\n"
CONTEXT, LENGTH = 16, 128
QUICK: dict[str, Any] = {
    "context": CONTEXT,
    "length": LENGTH,
    "sequences": 64,
    "passkey": False,
    "steps": 40,
    "lr": 3e-3,
    "in_context_tolerance": 1.0,  # a small model loses some perplexity in context
    "device": "cpu",
    "threads": 1,
}


def make_world(folder: Path) -> None:
    """Write texts/, run/ (a small Mamba-2 with slow decays) and theirs/ (the same for transformers) into `folder`."""
    store = make_store(folder, documents=60, words=900)
    slow = {"d_state": 16, "a_range": [0.05, 0.05], "dt_range": [0.1, 0.1]}
    run = run_spec(store.spec, budget={"steps": 300}, batch_tokens=512)
    run = run.model_copy(update={"model": model_spec(mixer=slow, d_model=32)})
    train(run, store, folder / "run", torch.device("cpu"))
    model, _ = load_model(folder / "run" / "model.safetensors")
    write_checkpoint(model, "mamba2", folder / "theirs")
    (folder / "theirs" / "README.md").write_text(CARD)


def extended(world: Path, out: Path, model: str = "theirs", **settings: Any) -> dict[str, Any]:
    """The result of `extend` with a model of the world."""
    given = {"text": [str(world / "texts")]} | QUICK | settings
    return extend(world / model, out=out, **given)
