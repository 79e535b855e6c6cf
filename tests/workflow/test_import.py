"""Arms of published weights in the workflow: with a stand-in for `ssm`, and with the real `ssm` and a kill."""

from __future__ import annotations

import json
import shutil
import sys
from pathlib import Path

import pytest
import torch
from models.formats import round_trip
from plan.mini import edit, figure
from small import import_checkpoint, write_checkpoint
from ssm_kernels.native.compiler import cache_folder
from workflow.stand_in import ROOT, after, executable, make, snakemake, verbs

from ssm.base.tables import read_provenance
from ssm.models.backbone import build_model
from ssm.models.weights_file import load_model
from ssm.plan import load_config

ARMS = {
    "base": {"label": "Base", "checkpoint": "my models/mine", "context": 32},
    "state_passing": {"label": "SP", "from": "base", "training": "posttrain", "initial_state": "state_passing"},
}
CLAIM = {
    "id": "repaired",
    "says": "It is repaired.",
    "paper": "Flat.",
    "quantity": {"kind": "perplexity_growth", "arm": "state_passing", "against": "base", "times_context": 16},
    "expected": {"below": 1.1},
}
RESTING = ["evaluate", "evaluate", "judge", "plot", "report"]


@pytest.fixture
def weights(place: Path) -> Path:
    """The folder of a checkpoint that lg_fig5 starts from."""
    figure(place / "config", "lg_fig5", arms=ARMS, claims=[CLAIM], headline=True)
    (place / "my models" / "mine").mkdir(parents=True)
    for name in ("config.json", "model.safetensors"):
        (place / "my models" / "mine" / name).write_text("{}")
    return place / "my models" / "mine"


@pytest.mark.exhaustive
def test_weights_are_imported_again_only_when_their_files_change(place: Path, weights: Path) -> None:
    first = make(place)
    assert verbs(first) == sorted([*RESTING, "import", "tokenize", "train"])
    (imported,) = (call for call in first if call[0] == "import")
    (trained,) = (call for call in first if call[0] == "train")
    assert json.loads((place / imported[1]).read_text())["checkpoint"] == {"name": "my models/mine"}
    assert imported[2:] == ["--out", after("--parent", trained)]

    (weights / "model.safetensors").write_text("{ }")
    assert verbs(make(place)) == sorted([*RESTING, "import", "train"]), "the text has not changed"


@pytest.mark.exhaustive
def test_imported_weights_can_be_used_when_their_files_are_gone(place: Path, weights: Path) -> None:
    assert "import" in verbs(make(place))
    assert make(place) == []
    weights.rename(place / "moved")
    more = ARMS | {"control": {"label": "Control", "from": "base", "training": "posttrain"}}
    figure(place / "config", "lg_fig5", arms=more, claims=[CLAIM], headline=True)
    assert verbs(make(place)) == ["evaluate", "judge", "plot", "report", "train"]


REAL = f"""#!{sys.executable}
import os, pathlib, signal, sys
from ssm.cli.main import main
if sys.argv[1] == "import" and pathlib.Path("kill").exists():
    from ssm.training import imported
    imported.write_json = lambda *_: os.kill(os.getpid(), signal.SIGKILL)  # after the weights, before the record
sys.exit(main())
"""


def publish(place: Path, folder: Path, d_state: int = 8) -> None:
    """Replace the folder by a small checkpoint in mamba_ssm's format, of the model in the config folder."""
    shutil.rmtree(folder)
    spec = load_config(place / "config").models.get("tiny", "here")
    mixer = spec.mixer.model_copy(update={"d_state": d_state})
    model = round_trip.moved(build_model(spec.model_copy(update={"mixer": mixer}), 256, 0))
    write_checkpoint(model, "mamba_ssm", folder)


@pytest.mark.exhaustive
def test_a_figure_from_published_weights_with_a_kill(
    place: Path, weights: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An import is killed and continues. Post-training, tables and report name the imported weights."""
    monkeypatch.setenv("SSM_KERNELS_CACHE", str(cache_folder()))
    executable(place / ".venv/bin/ssm", REAL)
    edit(place / "config", "data.yaml", 'paths: ["my text"]', f"paths: [{ROOT / 'ssm' / 'specs'}]")
    results = place / "a b" / "smoke"

    def failed() -> str:
        """The log of a failed import, which leaves no run and no table."""
        assert snakemake(place, "--cores", "2", "lg_fig5").returncode != 0
        assert not list(results.glob("runs/*/run.json"))
        assert not list(results.glob("tables/*"))
        (log,) = (results / "logs" / "runs").glob("*imported*.log")
        return log.read_text()

    publish(place, weights, d_state=4)
    assert failed() == "ssm import: my models/mine: is not the model 'tiny': d_state is 4, not 8\n"
    publish(place, weights)
    (place / "kill").touch()
    assert "ssm import: " not in failed()
    (place / "kill").unlink()

    made = snakemake(place, "--cores", "2")
    assert made.returncode == 0, made.stdout + made.stderr
    (base,) = results.glob("runs/*imported*")
    record = json.loads((base / "run.json").read_text())
    with torch.no_grad():
        there = import_checkpoint(weights).model(round_trip.tokens())[0]
        assert torch.equal(load_model(base / "model.safetensors")[0](round_trip.tokens())[0], there)
    runs = [json.loads(path.read_text())["published"] for path in results.glob("runs/*/run.json")]
    assert runs == [record["published"]] * 2
    tables = list(results.glob("tables/*.parquet"))
    assert [read_provenance(table)["published"] for table in tables] == [record["published"]] * 2
    page = (results / "report" / "index.html").read_text()
    assert f"my models/mine (fingerprint {record['origin']})" in page
    assert "1 (1 finished, 0 diverged)" in page
    again = snakemake(place, "--cores", "2")
    assert "Nothing to be done" in again.stdout + again.stderr
