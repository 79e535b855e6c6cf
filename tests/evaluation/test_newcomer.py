"""The measurement of CONTRIBUTING.md can be planned, estimated, made, judged and drawn."""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path

import newcomer
import pytest
from plan.mini import write_config

from ssm.plan.resources import START_SECONDS

FILES = newcomer.shown("measurement")
USE = """
import json, sys
from pathlib import Path
import torch, yaml
from small import make_store
from ssm.base.tables import VERDICTS, read_table
from ssm.cli.main import main
from ssm.evaluation.measure import measure
from ssm.evaluation.evaluation_context import EvaluationContext
from ssm.models.weights_file import load_model
from ssm.plan import load_config, make_plan
from ssm.plan.resources import needs
from ssm.training.loop import train

config, out, cpu = Path(sys.argv[1]), Path(sys.argv[2]), torch.device("cpu")
store = make_store(out)
content = store.spec.content()
(config / "data.yaml").write_text(yaml.safe_dump({content.pop("name"): content}))
library = load_config(config, figures=["lg_fig5"])
plan = make_plan(library)
((series,), ((name, task),)) = plan.figures["lg_fig5"].series, plan.measurements.items()
train(task.run, store, out / "run", cpu)
measure(task, out / f"{name}.parquet", cpu, out / "run", store.folder)
figure = out / "figure.json"
figure.write_text(json.dumps(plan.figures["lg_fig5"].content()))
assert main(["judge", str(figure), "--tables", str(out), "--out", str(out / "verdicts.parquet")]) == 0
assert main(["plot", str(figure), "--tables", str(out), "--out", str(out / "pictures")]) == 0
model, _ = load_model(out / "run" / "model.safetensors", cpu)
windows = EvaluationContext(model, task.run.seed, store, cpu, "").windows(16, 64, 5)
inputs, targets = windows.read(torch.arange(16).numpy(), 0, 64)
print(json.dumps({
    "planned": task.measurement.content(),
    "tables": series.tables == {"right": name},
    "seconds": needs(plan, library.workflow, gpu=False)[name].seconds,
    "judged": read_table(out / "verdicts.parquet", VERDICTS).row(0, named=True)["estimate"],
    "expected": (model(inputs)[0].argmax(-1) == targets)[:, 48:].double().mean().item(),
}))
"""
FIGURE = """
paper: lg
title: Accuracy by position
caption: How often the likeliest token is the right one.
setting: None.
models: [tiny]
data: small
seeds: [1]
arms:
  base: {label: Base, training: pretrain, override: {budget: {steps: 5}}}
measurements:
  - {kind: top1_accuracy, times_context: 2, name: right}
drawings:
  - {kind: curves, measurement: right, x: position, column: accuracy, tokens: true}
claims:
  - id: often
    says: It is right more often than chance.
    paper: None.
    quantity: {kind: value_at, arm: base, measurement: right, column: accuracy, times_context: 2}
    expected: {above: 0.004}
"""


def test_the_measurement_of_the_guide_works_in_all_steps(tmp_path: Path) -> None:
    assert sum(len(text.strip().splitlines()) for text in (*FILES.values(), FIGURE)) <= 60
    newcomer.add(tmp_path, FILES)
    config = write_config(tmp_path / "config")
    (config / "figures" / "lg_fig5.yaml").write_text(FIGURE)
    done = newcomer.python(tmp_path, "-c", USE, str(config), str(tmp_path))
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout.splitlines()[-1])
    assert found["planned"] == {"kind": "top1_accuracy", "length": 64, "sequences": 16, "seed": 5}
    assert found["tables"]
    assert found["seconds"] > START_SECONDS[False], "reading takes time"
    assert found["judged"] == pytest.approx(found["expected"], abs=1e-12)
    assert 0 < found["judged"] < 1
    assert "accuracy" in (tmp_path / "pictures" / "lg_fig5.svg").read_text()


def test_the_guide_adds_it_to_the_small_figure(tmp_path: Path) -> None:
    newcomer.add(tmp_path, FILES)
    shutil.copytree(newcomer.ROOT / "config", tmp_path / "config")
    pages = [(newcomer.ROOT / page).read_text("utf-8") for page in ("docs/change-a-figure.md", "CONTRIBUTING.md")]
    (figure,) = re.findall(r"^```yaml\n(paper: .*?)^```", pages[0], re.M | re.S)
    added = re.findall(r"Under `(\w+)`, add\s+`(- .*?)`", pages[1])
    assert [key for key, _ in added] == ["measurements", "drawings"]
    for key, line in added:
        figure = figure.replace(f"{key}:\n", f"{key}:\n  {line}\n")
    (tmp_path / "config" / "figures" / "x_mine.yaml").write_text(figure)
    done = newcomer.python(tmp_path, "-m", "ssm", "plan", "--figures", "x_mine")
    assert done.returncode == 0, done.stderr
    assert "x_mine" in done.stdout
