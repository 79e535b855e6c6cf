"""A newcomer's task: two files and two lines, and it is planned, reckoned, trained and measured."""

from __future__ import annotations

import json
from pathlib import Path

import newcomer
import pytest
from plan.mini import edit, figure, write_config

SPEC = '''
"""The spec of repeating one letter."""

from typing import Literal

from pydantic import PositiveInt

from ssm.specs.tasks.base import Mix, Part, Task


class EchoPart(Part):
    times: PositiveInt

    def at(self, length: int) -> "EchoPart":
        return self.model_copy(update={"times": length})


class EchoTask(Task):
    """A letter is read once and written so many times."""

    task: Literal["echo"] = "echo"
    mix: Mix[EchoPart]

    vocab_size = property(lambda self: 5)
    least_context = property(lambda self: max(part.times for part in self.mix))
    longest_answer = least_context
    groups = property(lambda self: ("echo",))
'''
MODULE = '''
"""Repeating one letter."""

import numpy as np

from ssm.data.tasks.base import Answers, Examples, Generator


class Echo(Generator):
    def make(self, indices):
        draws = self.draws(indices)
        times = np.array([part.times for part in self.spec.mix])[self.parts(draws)]
        letters = draws.integers("letter", 5)  # (B, 1)
        asked = np.arange(self.spec.least_context) < times[:, None]
        rows, zeros = np.arange(len(times)), np.zeros(len(times), np.int64)
        answers = Answers(rows, zeros, times, times, zeros, np.full(len(times), np.nan))
        return Examples(np.tile(letters, self.spec.least_context + 1), asked, answers)
'''
FILES = {"specs/tasks/echo.py": SPEC, "data/tasks/echo.py": MODULE}
LINES = {
    "specs/tasks": ("from ssm.specs.tasks.echo import EchoTask\n", "SPECS: ", "    EchoTask,\n"),
    "data/tasks": ("from ssm.data.tasks.echo import Echo\n", "GENERATORS: ", '    "echo": Echo,\n'),
}
USE = """
import json, sys
from pathlib import Path
import torch
from ssm.base.tables import METRICS, read_table
from ssm.specs.measurements.accuracy import Accuracy
from ssm.data.build import build_store
from ssm.data.store import TokenStore
from ssm.evaluation.measure import measure
from ssm.plan import load_config, make_plan
from ssm.plan.resources import needs
from ssm.plan.schemas import schemas
from ssm.training.loop import train
library, out, cpu = load_config(sys.argv[1]), Path(sys.argv[2]), torch.device("cpu")
plan = make_plan(library)
task = next(task for task in plan.measurements.values() if task.measurement.kind == "accuracy")
build_store(task.data, out / "tokens")
train(task.run, TokenStore.open(out / "tokens"), out / "run", cpu)
measure(task, out / "t.parquet", cpu, out / "run", out / "tokens")
found = read_table(out / "t.parquet", Accuracy.table)
print(json.dumps({
    "seconds": needs(plan, library.workflow, gpu=False)[task.id].seconds,
    "tokens": sum(work.tokens for work in task.measurement.work(task.run)),
    "learned": read_table(out / "run" / "metrics.parquet", METRICS)["accuracy"][-10:].mean(),
    "lengths": sorted(set(found["length"])),
    "right": found["generated_share"].mean(),
    "told": any("EchoTask" in json.dumps(schema) for schema in schemas().values()),
}))
"""


@pytest.mark.exhaustive
def test_a_newcomer_is_planned_reckoned_trained_and_measured(tmp_path: Path) -> None:
    newcomer.add(tmp_path, FILES, LINES)
    config = write_config(tmp_path / "config")
    edit(config, "data.yaml", "text:", "echo: {task: echo, mix: [{times: 3}, {times: 6, share: 2}]}\ntext:")
    arms = {"base": {"label": "Base", "training": "pretrain"}}
    figure(config, "lg_tab1", data="echo", arms=arms, measurements=[{"kind": "accuracy", "lengths": [2, 9]}])
    done = newcomer.python(tmp_path, "-c", USE, str(config), str(tmp_path))
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout.splitlines()[-1])
    assert found["seconds"] > 0
    assert found["tokens"] == 128 * 2 * (2 + 9), "it reads and writes"
    assert found["learned"] > 0.95
    assert found["lengths"] == [2, 9]
    assert found["right"] > 0.9
    assert found["told"]


PLACE = "add ssm/{0}/echo.py, and its line in ssm/{0}/__init__.py"
FORGOTTEN = {
    "its generator": (
        "data/tasks/echo.py",
        None,
        f"ssm/specs/tasks/echo.py: the spec 'echo' has no module: {PLACE.format('data/tasks')}",
    ),
    "its groups": (
        "specs/tasks/echo.py",
        ("    groups = ", "    sets = "),
        "ssm/specs/tasks/echo.py: EchoTask lacks groups",
    ),
    "its name": (
        "specs/tasks/echo.py",
        ('["echo"] = "echo"', '["say"] = "say"'),
        "ssm/specs/tasks/echo.py: EchoTask needs the name of its file: task: Literal['echo'] = 'echo'",
    ),
    "its spec's line": (
        "specs/tasks/__init__.py",
        ("    EchoTask,\n", ""),
        "ssm/specs/tasks/__init__.py: no line for 'echo' of ssm/specs/tasks/echo.py",
    ),
}


@pytest.mark.parametrize("what", FORGOTTEN)
def test_what_was_forgotten_is_one_line(what: str, tmp_path: Path) -> None:
    name, change, said = FORGOTTEN[what]
    newcomer.add(tmp_path, FILES, LINES)
    path = tmp_path / "ssm" / name
    if change is None:
        path.unlink()
    else:
        assert change[0] in path.read_text()
        path.write_text(path.read_text().replace(*change))
    done = newcomer.python(tmp_path, "-m", "ssm", "plan")
    assert done.stderr == f"ssm plan: {said}\n"
    assert done.returncode == 2


def test_a_generator_without_its_line_is_told_when_examples_are_asked_for(tmp_path: Path) -> None:
    newcomer.add(tmp_path, FILES, {"specs/tasks": LINES["specs/tasks"]})
    done = newcomer.python(tmp_path, "-c", "import ssm.data.tasks")
    said = "ssm/data/tasks/echo.py is in no registry: add its line in ssm/data/tasks/__init__.py"
    assert done.stderr.splitlines()[-1] == f"ssm.specs.registry.RegistryError: {said}"
