"""A new mixer, task, corpus and so on needs only new files: it is then planned or read by its name."""

from __future__ import annotations

import json
import re
from pathlib import Path

import newcomer
import pytest
import yaml
from plan.mini import figure, write_config

# For each kind, the files of an existing one. The new one is a copy with another name.
KINDS = {
    "policy": ("specs/initial_states/random_noise.py", "training/initial_states/random_noise.py"),
    "task": ("specs/tasks/recall.py", "data/tasks/recall.py"),
    "mixer": ("specs/mixers/gru.py", "models/mixers/gru.py"),
    "ffn": ("specs/ffn/mlp.py", "models/ffn/mlp.py"),
    "repair": ("specs/repairs/clip_dt.py", "models/repairs/clip_dt.py"),
    "corpus": ("specs/corpora/stdlib.py", "data/corpora/stdlib.py"),
    "format": ("models/formats/rwkv.py",),
}
USE = """
import json, sys
import torch
from ssm.base.errors import ConfigError
from ssm.data.corpora import READERS
from ssm.data.tasks import GENERATORS
from ssm.models.backbone import build_model
from ssm.models.formats import FORMATS
from ssm.models.repairs import REPAIRS
from ssm.plan import load_config, make_plan
from ssm.specs.extension import known_policy
from ssm.training.initial_states import POLICIES

plan = make_plan(load_config(sys.argv[1]))
runs = [run.content() for run in plan.runs.values()]
spec = next(run.model for run in plan.runs.values() if run.model.name == "model")
logits, _ = build_model(spec, 7, 1)(torch.zeros(2, 5, dtype=torch.int64))
assert logits.shape == (2, 5, 7)
modules = {"policy": POLICIES, "task": GENERATORS, "repair": REPAIRS, "corpus": READERS}
registered = {kind: found[f"new_{kind}"].__module__ for kind, found in modules.items()}
registered["format"] = FORMATS["new_format"].recognizes({"model_type": "new_format"})
try:
    answer = known_policy("new_policy")
except ConfigError as error:
    answer = str(error)
print(json.dumps({"runs": runs, "registered": registered, "extend": answer}))
"""


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory) -> dict[str, object]:
    """The plan of a copy of the package with one new thing of each kind, and the modules where it found them."""
    root = tmp_path_factory.mktemp("newcomers")
    files = {}
    for kind, places in KINDS.items():
        for place in places:
            old, new = Path(place).stem, f"new_{kind}"
            text = (newcomer.ROOT / "ssm" / place).read_text(encoding="utf-8")
            text = re.sub(rf'(?<="){old}(?=")|(?<=\.){old}(?= import)|(?<=def ){old}\b', new, text)
            files[place.replace(f"{old}.py", f"{new}.py")] = text.replace("sigma", "width")
    newcomer.add(root, files)
    config = write_config(root / "config")
    for name, more in {
        "models": {
            "model": {
                "d_model": 16,
                "n_layers": 1,
                "peak_lr": 1e-3,
                "mixer": {"kind": "new_mixer"},
                "ffn": {"kind": "new_ffn", "d_hidden": 8},
            }
        },
        "data": {
            "prose": {"corpus": {"kind": "new_corpus"}, "choice": 0.1},
            "pairs": {"task": "new_task", "mix": [{"length": 16, "pairs": 4}]},
        },
    }.items():
        path = config / f"{name}.yaml"
        path.write_text(path.read_text() + yaml.safe_dump(more))
    path = config / "training.yaml"
    content = yaml.safe_load(path.read_text())
    content["initial_states"]["calm"] = {"policy": "new_policy", "width": 0.1}
    path.write_text(yaml.safe_dump(content))
    base = {"label": "Base", "training": "pretrain"}
    repaired = {"label": "Repaired", "from": "base", "repair": {"kind": "new_repair"}}
    figure(config, "lg_fig4", data="prose", arms={"base": base | {"initial_state": "calm"}, "repaired": repaired})
    figure(config, "lg_fig5", models=["model"], data="prose", arms={"base": base})
    curves = {"kind": "curves", "measurement": "compute", "x": "stage", "column": "read"}
    figure(config, "lg_fig6", data="pairs", arms={"base": base}, measurements=[{"kind": "compute"}], drawings=[curves])
    done = newcomer.python(root, "-c", USE, str(config))
    assert done.returncode == 0, done.stderr
    result: dict[str, object] = json.loads(done.stdout.splitlines()[-1])
    return result


@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind != "format"])
def test_a_new_one_is_planned_by_its_name(kind: str, found: dict[str, object]) -> None:
    assert f'"new_{kind}"' in json.dumps(found["runs"])


@pytest.mark.parametrize("kind", ["policy", "task", "repair", "corpus"])
def test_a_new_one_has_its_own_module(kind: str, found: dict[str, dict[str, object]]) -> None:
    """The model of the fixture has already used the modules of the mixer and the ffn."""
    assert str(found["registered"][kind]).endswith(f".new_{kind}")


def test_a_new_policy_with_a_required_field_is_no_policy_of_an_extension(found: dict[str, str]) -> None:
    """`ssm extend` has no option for its field."""
    assert found["extend"].startswith("--policy new_policy: a field that it requires has no option; use it in a figure")


def test_a_new_format_is_recognized(found: dict[str, dict[str, object]]) -> None:
    assert found["registered"]["format"] is True
