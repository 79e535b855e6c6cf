"""Reading in segments: it does not change results, and memory does not grow with the length of the text."""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from polars.testing import assert_frame_equal
from small import make_store, run_spec, save_model

from ssm.base.files import write_json
from ssm.evaluation import MEASURES, stream
from ssm.evaluation.evaluation_context import EvaluationContext
from ssm.evaluation.position_loss import position_loss
from ssm.models import logits
from ssm.models.backbone import build_model
from ssm.models.weights_file import digests
from ssm.specs.measurement import MeasurementTask
from ssm.specs.measurements import MeasurementSpec
from ssm.specs.measurements.effective_remembrance import EffectiveRemembrance
from ssm.specs.measurements.passkey import Passkey
from ssm.specs.measurements.position_loss import PositionLoss
from ssm.specs.measurements.restart_loss import RestartLoss
from ssm.specs.measurements.state_statistics import StateStatistics
from ssm.specs.measurements.validation_loss import ValidationLoss
from ssm.specs.model import ModelSpec

PEAK = """
import resource, sys
from pathlib import Path
from ssm.evaluation.measure import measure
from ssm.models.device import prepare_device
from ssm.specs.measurement import MeasurementTask
spec, run, tokens, out = map(Path, sys.argv[1:])
measure(MeasurementTask.load(spec), out, prepare_device("cpu", 1), run, tokens)
print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss)
"""


@pytest.mark.exhaustive
def test_peak_memory_does_not_grow_with_length(tmp_path: Path) -> None:
    store = make_store(tmp_path, documents=60, words=24_000)
    run = run_spec(store.spec)
    (tmp_path / "run").mkdir()
    record = {"status": "finished", "message": "finished", "diverged": None, "steps": 0, "budget_steps": 0, "tokens": 0}
    save_model(tmp_path / "run" / "model.safetensors", build_model(run.model, 256, 1), run, 0, "")
    write_json(tmp_path / "run" / "run.json", record | {"weights": digests(tmp_path / "run", run)})
    peaks = {}
    for length in (20_000, 1_000_000):
        task = MeasurementTask(measurement=PositionLoss(length=length, sequences=1), run=run)
        spec = tmp_path / f"{length}.json"
        spec.write_text(json.dumps(task.content()))
        arguments = [str(spec), str(tmp_path / "run"), str(store.folder), str(tmp_path / f"{length}.parquet")]
        done = subprocess.run([sys.executable, "-c", PEAK, *arguments], capture_output=True, text=True, timeout=120)
        assert done.returncode == 0, done.stderr
        peaks[length] = int(done.stdout.split()[-1])  # KiB
    assert peaks[1_000_000] <= 1.1 * peaks[20_000]


@pytest.mark.parametrize("limit", ["tokens", "activations"])
@pytest.mark.parametrize(
    "measurement",
    [
        PositionLoss(length=200, sequences=40),
        RestartLoss(length=300, sequences=5, context=128),
        RestartLoss(length=300, sequences=5, context=128, everywhere=True),
        EffectiveRemembrance(length=200, sequences=3),
        StateStatistics(length=200, sequences=3),
        Passkey(lengths=(260,), depths=(0.0, 1.0), trials=20),
    ],
    ids=lambda measurement: measurement.kind,
)
def test_tokens_and_activations_of_a_forward_pass_are_limited(
    limit: str, measurement: MeasurementSpec, ctx: EvaluationContext, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Activations matter for models whose last hidden activations are their logits."""
    read: list[int] = []
    hidden = ctx.model.hidden

    def counted(tokens: torch.Tensor, state: Any = None) -> tuple[torch.Tensor, Any]:
        read.append(tokens.numel())
        return hidden(tokens, state)

    monkeypatch.setattr(ctx.model, "hidden", counted)
    if limit == "tokens":
        monkeypatch.setitem(stream.FORWARD_TOKENS, "cpu", 96)
    else:
        monkeypatch.setattr(stream, "ACTIVATIONS", 96 * ctx.model.hidden_size)
    MEASURES[measurement.kind](measurement, ctx)
    assert 90 <= max(read) <= 96


@pytest.mark.parametrize("forward_tokens", [1, 7, 64])
@pytest.mark.parametrize(
    "measurement",
    [
        PositionLoss(length=50, sequences=3),
        PositionLoss(length=50, sequences=5, shuffled=16),
        RestartLoss(length=40, sequences=3, context=16),
        RestartLoss(length=40, sequences=3, context=16, everywhere=True),
        ValidationLoss(length=32, sequences=3, context=16),
        EffectiveRemembrance(length=24, sequences=3),
    ],
    ids=lambda measurement: measurement.kind,
)
def test_the_size_of_segments_does_not_change_results(
    forward_tokens: int, measurement: MeasurementSpec, ctx: EvaluationContext, monkeypatch: pytest.MonkeyPatch
) -> None:
    expected = MEASURES[measurement.kind](measurement, ctx)
    monkeypatch.setitem(stream.FORWARD_TOKENS, "cpu", forward_tokens)
    monkeypatch.setitem(stream.ROWS, "cpu", 2)
    monkeypatch.setattr(logits, "LOGITS", 256 * forward_tokens)
    assert_frame_equal(MEASURES[measurement.kind](measurement, ctx), expected, rel_tol=1e-9, abs_tol=1e-12)


@pytest.mark.parametrize("kind", ["recurrent", "cache"])
def test_the_states_of_a_batch_fit_into_memory(
    kind: str, ctx: EvaluationContext, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A cache of keys and values grows, so its size at the end of the text counts."""
    if kind == "cache":
        mixer = {"kind": "attention", "n_heads": 2}
        spec = {"name": "tiny", "d_model": 16, "n_layers": 2, "mixer": mixer, "peak_lr": 1e-2}
        ctx = replace(ctx, model=build_model(ModelSpec.parse(spec, "tests"), 256, seed=1).eval())
    with torch.inference_mode():
        _, state = ctx.model.hidden(torch.zeros(1, 150, dtype=torch.int64))
    monkeypatch.setitem(stream.STATES, "cpu", 7 * state.nbytes + 1)
    rows: list[int] = []
    hidden = ctx.model.hidden

    def counted(tokens: torch.Tensor, state: Any = None) -> tuple[torch.Tensor, Any]:
        rows.append(len(tokens))
        return hidden(tokens, state)

    monkeypatch.setattr(ctx.model, "hidden", counted)
    position_loss(PositionLoss(length=150, sequences=20), ctx)
    assert max(rows) == 7
    monkeypatch.setitem(stream.STATES, "cpu", 1)  # even then, one sequence is read
    rows.clear()
    position_loss(PositionLoss(length=150, sequences=20), ctx)
    assert max(rows) == 1
