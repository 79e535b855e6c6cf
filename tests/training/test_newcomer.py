"""A newcomer's initial-state policy: two files and two lines, and it is planned, reckoned, trained and offered."""

from __future__ import annotations

import json
from pathlib import Path

import newcomer
import pytest
from plan.mini import edit, write_config

AVERAGE_SPEC = '''
"""The spec of passing on the average state."""

from typing import ClassVar, Literal

from ssm.specs.initial_states.base import Held, InitialState, Needs, Sequences


class AveragePassing(InitialState):
    """Every sequence starts from the average of the states that the last batch ended in; two batches' are kept."""

    needs: ClassVar[Needs] = "a recurrence in every layer"
    policy: Literal["average"] = "average"
    kept: int = 2

    def remembered(self, batch: int) -> float:
        return self.kept

    def held(self, sequences: Sequences) -> Held:
        start = sequences.mine + self.kept
        return Held(before=start, within=start + 2 * sequences.micro, behind=start)

    def unlike_the_paper(self) -> tuple[str, ...]:
        return ("the paper passes on no average",)
'''
AVERAGE_MODULE = '''
"""Passing on the average state."""

from ssm.models.state import State
from ssm.training.initial_states.base import Policy


class AveragePolicy(Policy):
    """Averages of one process's rows alone."""

    def __init__(self, spec, seed, team):
        super().__init__(spec, seed, team)
        self.averages, self.parts = [], []

    def start(self, step, batch_size, device):
        if not self.averages:
            return None
        return self.averages[-1].to(device).map(lambda x: x.expand(batch_size, *x.shape[1:]).clone())

    def see(self, ended):
        self.parts.append(ended.map(lambda x: x.mean(0, keepdim=True)))

    def learn(self):
        self.averages = [*self.averages, self.parts[-1]][-self.spec.kept:]
        self.parts = []

    def tensors(self):
        return {k: v for i, state in enumerate(self.averages) for k, v in state.tensors(f"average.{i}.").items()}

    def load(self, tensors):
        kept = range(self.spec.kept if tensors else 0)
        self.averages = [State.from_tensors(tensors, f"average.{i}.") for i in kept]
'''
FILES = {"specs/initial_states/average.py": AVERAGE_SPEC, "training/initial_states/average.py": AVERAGE_MODULE}
LINES = {
    "specs/initial_states": (
        "from ssm.specs.initial_states.average import AveragePassing\n",
        "SPECS: ",
        "    AveragePassing,\n",
    ),
    "training/initial_states": (
        "from ssm.training.initial_states.average import AveragePolicy\n",
        "POLICIES: ",
        '    "average": AveragePolicy,\n',
    ),
}
USE = """
import contextlib, io, json, sys
from pathlib import Path
from ssm.cli.main import main
config, out = Path(sys.argv[1]), Path(sys.argv[2])
assert main(["plan", "--config", str(config), "--write", str(out / "specs")]) == 0
with contextlib.redirect_stdout(io.StringIO()) as page, contextlib.suppress(SystemExit):
    main(["extend", "--help"])
from extension.test_recipe import DATA, imported, model_spec, spec
from plan.test_memory import measured, parameter_count, peak_memory, policy_bytes, run_of
from ssm.extension.recipe import extended_run, unlike_the_paper
asked = spec(initial_state={"policy": "average"})
run = run_of({"d_model": 64, "n_layers": 4}, 256, context=16, batch_tokens=2048, micro_batch_tokens=64,
             initial_state={"policy": "average"})
peak = measured(run, out)
print(json.dumps({
    "planned": sorted(path.name.rsplit("-", 1)[0] for path in (out / "specs" / "runs").iterdir()),
    "offered": "average" in page.getvalue().split("--policy POLICY ")[1].split("(default")[0],
    "extended": extended_run(asked, imported(), DATA, "theirs").training.initial_state.content(),
    "said": unlike_the_paper(asked, model_spec()),
    "memory": [peak_memory(run).total, peak],
    "checkpoint": [12 * parameter_count(run.model, 256) + policy_bytes(run),
                   (out / "run" / "checkpoint.safetensors").stat().st_size],
    "held": policy_bytes(run),
}))
"""


@pytest.mark.exhaustive
def test_a_newcomer_is_planned_reckoned_trained_and_offered(tmp_path: Path) -> None:
    newcomer.add(tmp_path, FILES, LINES)
    config = write_config(tmp_path / "config")
    edit(config, "training.yaml", "{policy: state_passing}", "{policy: average}")
    done = newcomer.python(tmp_path, "-c", USE, str(config), str(tmp_path))
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout.splitlines()[-1])
    assert any("_average_" in name for name in found["planned"]), found["planned"]
    assert found["offered"]
    assert found["extended"] == {"policy": "average", "kept": 2}
    assert "the paper passes on no average" in found["said"]
    assert found["memory"][0] == pytest.approx(found["memory"][1], rel=0.2)
    assert found["checkpoint"][0] == pytest.approx(found["checkpoint"][1], rel=0.02)
    assert found["held"] > 0.05 * found["checkpoint"][1], "of which it is a part that counts"


FORGOTTEN = {
    "its module": (
        "training/initial_states/average.py",
        None,
        "ssm/specs/initial_states/average.py: the spec 'average' has no module: "
        "add ssm/training/initial_states/average.py, and its line in ssm/training/initial_states/__init__.py",
    ),
    "what a checkpoint holds": (
        "specs/initial_states/average.py",
        ("def remembered", "def forgotten"),
        "ssm/specs/initial_states/average.py: AveragePassing lacks remembered",
    ),
    "its name": (
        "specs/initial_states/average.py",
        ('["average"] = "average"', '["mean"] = "mean"'),
        "ssm/specs/initial_states/average.py: AveragePassing needs the name of its file: "
        "policy: Literal['average'] = 'average'",
    ),
    "its spec's line": (
        "specs/initial_states/__init__.py",
        ("    AveragePassing,\n", ""),
        "ssm/specs/initial_states/__init__.py: no line for 'average' of ssm/specs/initial_states/average.py",
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
