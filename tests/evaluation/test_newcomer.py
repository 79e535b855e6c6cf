"""A newcomer's measurement: two files and two lines, and it is planned, reckoned, made, judged and drawn."""

from __future__ import annotations

import json
from pathlib import Path

import newcomer
import pytest
from plan.mini import figure, write_config

from ssm.plan.resources import START_SECONDS

SPEC = '''
"""The spec of accuracy by position."""

from typing import ClassVar, Literal

from pydantic import PositiveInt

from ssm.base.schema import Schema, binned
from ssm.specs.measurements.base import OfWindows


class Top1Accuracy(OfWindows):
    """How often the likeliest token is the right one, at every position of held-out windows, in bins."""

    table: ClassVar[Schema] = binned("top1_accuracy", "one sequence, one bin: the share of right guesses", "accuracy")
    kind: Literal["top1_accuracy"] = "top1_accuracy"
    sequences: PositiveInt = 16
    seed: int = 5
'''
FUNCTION = '''
"""Accuracy by position."""

from ssm.evaluation.by_position import by_position


def top1_accuracy(spec, subject):
    return by_position(spec, subject, spec.table, lambda logits, targets: logits.argmax(-1) == targets)
'''
FILES = {
    "specs/measurements/top1_accuracy.py": SPEC,
    "evaluation/top1_accuracy.py": FUNCTION,
}
LINES = {
    "specs/measurements": (
        "from ssm.specs.measurements.top1_accuracy import Top1Accuracy\n",
        "SPECS: ",
        "    Top1Accuracy,\n",
    ),
    "evaluation": ("from ssm.evaluation import top1_accuracy\n", "MODULES: ", "    top1_accuracy,\n"),
}
USE = """
import json, sys
from pathlib import Path
import torch, yaml
from small import make_store
from ssm.base.tables import VERDICTS, read_table
from ssm.cli.main import main
from ssm.evaluation.measure import measure
from ssm.evaluation.subject import Subject
from ssm.models.checkpoint import load_model
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
windows = Subject(model, task.run.seed, store, cpu, "").windows(16, 64, 5)
inputs, targets = windows.read(torch.arange(16).numpy(), 0, 64)
print(json.dumps({
    "planned": task.measurement.content(),
    "tables": series.tables == {"right": name},
    "seconds": needs(plan, library.workflow, gpu=False)[name].seconds,
    "judged": read_table(out / "verdicts.parquet", VERDICTS).row(0, named=True)["estimate"],
    "expected": (model(inputs)[0].argmax(-1) == targets)[:, 48:].double().mean().item(),
}))
"""
FIGURE = {
    "data": "small",
    "arms": {"base": {"label": "Base", "training": "pretrain", "override": {"budget": {"steps": 5}}}},
    "measurements": [{"kind": "top1_accuracy", "times_context": 2, "name": "right"}],
    "drawings": [{"kind": "curves", "measurement": "right", "x": "position", "column": "accuracy", "tokens": True}],
    "claims": [
        {
            "id": "often",
            "says": "It is right more often than chance.",
            "paper": "None.",
            "quantity": {
                "kind": "value_at",
                "arm": "base",
                "measurement": "right",
                "column": "accuracy",
                "times_context": 2,
            },
            "expected": {"above": 0.004},
        }
    ],
}


def test_a_newcomer_is_planned_reckoned_measured_judged_and_drawn(tmp_path: Path) -> None:
    newcomer.add(tmp_path, FILES, LINES)
    config = write_config(tmp_path / "config")
    figure(config, "lg_fig5", **FIGURE)
    done = newcomer.python(tmp_path, "-c", USE, str(config), str(tmp_path))
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout.splitlines()[-1])
    assert found["planned"] == {"kind": "top1_accuracy", "length": 64, "sequences": 16, "seed": 5}
    assert found["tables"]
    assert found["seconds"] > START_SECONDS[False], "it reads"
    assert found["judged"] == pytest.approx(found["expected"], abs=1e-12)
    assert 0 < found["judged"] < 1
    assert "accuracy" in (tmp_path / "pictures" / "lg_fig5.svg").read_text()


def test_it_takes_no_more_than_the_readme_says() -> None:
    """At most five files and 60 lines, and a line with its import in each registry."""
    assert len(FILES) == len(LINES) == 2
    assert sum(len(text.strip().splitlines()) for text in FILES.values()) <= 60


PLACE = "add ssm/{0}/top1_accuracy.py, and its line in ssm/{0}/__init__.py"
SPEC_FILE = "ssm/specs/measurements/top1_accuracy.py"
FORGOTTEN = {
    "its schema": (
        "specs/measurements/top1_accuracy.py",
        "    table: ClassVar[Schema] = binned("
        '"top1_accuracy", "one sequence, one bin: the share of right guesses", "accuracy")\n',
        f"{SPEC_FILE}: Top1Accuracy lacks table",
    ),
    "its function": (
        "evaluation/top1_accuracy.py",
        None,
        f"{SPEC_FILE}: the spec 'top1_accuracy' has no module: {PLACE.format('evaluation')}",
    ),
    "its function's line": (
        "evaluation/__init__.py",
        LINES["evaluation"][0],
        "ssm/evaluation/top1_accuracy.py is in no registry: add its line in ssm/evaluation/__init__.py",
    ),
    "its spec's line": (
        "specs/measurements/__init__.py",
        LINES["specs/measurements"][2],
        f"ssm/specs/measurements/__init__.py: no line for 'top1_accuracy' of {SPEC_FILE}",
    ),
    "what it is made of": (
        "specs/measurements/top1_accuracy.py",
        "(OfWindows)",
        f"{SPEC_FILE}: Top1Accuracy lacks capped, read",
    ),
}


@pytest.mark.parametrize("what", FORGOTTEN)
def test_what_was_forgotten_is_one_line_before_anything_is_planned(what: str, tmp_path: Path) -> None:
    name, lacking, said = FORGOTTEN[what]
    newcomer.add(tmp_path, FILES, LINES)
    path = tmp_path / "ssm" / name
    if lacking is None:
        path.unlink()
    else:
        assert lacking in path.read_text()
        path.write_text(path.read_text().replace(lacking, "(OfRun)" if lacking.startswith("(") else ""))
        path.write_text(path.read_text().replace("import OfWindows", "import OfRun"))
    done = newcomer.python(tmp_path, "-m", "ssm", "plan")
    assert done.stderr == f"ssm plan: {said}\n"
    assert done.returncode == 2
