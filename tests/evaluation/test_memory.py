"""Constant memory: a sequence of a million tokens needs what one of twenty thousand needs."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

from small import make_store, run_spec

from ssm.base.files import write_json
from ssm.models.backbone import build_model
from ssm.models.checkpoint import save_model
from ssm.specs.measurement import MeasurementTask, PositionLoss

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


def test_peak_memory_does_not_grow_with_length(tmp_path: Path) -> None:
    store = make_store(tmp_path, documents=60, words=24_000)
    run = run_spec(store.spec)
    (tmp_path / "run").mkdir()
    record = {"status": "finished", "message": "finished", "diverged": None, "steps": 0, "budget_steps": 0}
    write_json(tmp_path / "run" / "run.json", record)
    save_model(tmp_path / "run" / "model.safetensors", build_model(run.model, 256, 1), run, 0, "")
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
