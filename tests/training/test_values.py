"""Training on values: the loss is that of the class token, a finite set is read in epochs, weights can be loaded."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from small import make_task, model_spec
from torch.nn import functional as F

from ssm.base.seeds import derived_seed
from ssm.base.tables import METRICS, read_table
from ssm.data.training_batches import training_batches
from ssm.models.backbone import build_model
from ssm.models.weights_file import load_model
from ssm.specs.training import RunSpec, TrainingSpec
from ssm.training.loop import train

CPU = torch.device("cpu")


def test_a_classifier_of_pixels_learns_from_the_class_token(tmp_path: Path) -> None:
    """The first step's loss equals one computed by hand. After 30 epochs of 40 images most of them are known."""
    store = make_task(tmp_path / "tokens", task="pixels", images={"kind": "digits"}, examples=40)
    recipe = {"context": 65, "batch_tokens": 20 * 65, "micro_batch_tokens": 10 * 65, "budget": {"steps": 60}}
    training = TrainingSpec.parse(recipe | {"min_lr": 1e-3}, "tests")
    run = RunSpec(model=model_spec(), data=store.spec, training=training, seed=3)
    model = build_model(run.model, 10, 3, channels=1)
    batch = training_batches(store, 65, 20, False, derived_seed(3, "order", 0)).batch(0)
    with torch.no_grad():
        logits, _ = model(batch.inputs)
    loss = F.cross_entropy(logits[:, -1], batch.targets[:, -1])
    train(run, store, tmp_path / "run", CPU)
    metrics = read_table(tmp_path / "run" / "metrics.parquet", METRICS)
    assert metrics["loss"][0] == pytest.approx(float(loss), rel=1e-5)
    assert metrics["accuracy"][:4].mean() < 0.4
    assert metrics["accuracy"][-4:].mean() > 0.8
    trained, again = load_model(tmp_path / "run" / "model.safetensors")
    assert again == run
    assert trained.channels == 1
    with torch.no_grad():
        right = (trained(batch.inputs)[0][:, -1].argmax(-1) == batch.targets[:, -1]).float().mean()
    assert right > 0.8
