"""Extensions without training: what is written, and what is refused."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from extension.world import extended
from safetensors.torch import load_file
from small import content, import_checkpoint

from ssm.base.errors import CheckpointError, ConfigError
from ssm.models.backbone import LanguageModel
from ssm.models.formats import export_checkpoint
from ssm.models.repairs import repaired
from ssm.specs.repairs.clip_dt import ClipDt

pytestmark = pytest.mark.usefixtures("without_plots")

UNTRAINED: dict[str, Any] = {"steps": None, "lr": None}


def test_a_scaled_model_holds_and_transformers_reads_it(world: Path, tmp_path: Path) -> None:
    found = extended(world, tmp_path / "out", policy="scale_a", **UNTRAINED)
    assert found["outcome"] in ("repaired", "improved")
    assert found["change"]["far_perplexity"]["high"] < 1
    search = json.loads((tmp_path / "out/work/repair.json").read_text())
    factor, other = search["chosen"]
    assert factor == other > 1
    assert not (tmp_path / "out/work/runs").exists(), "nothing was trained"
    before, after = (load_file(folder / "model.safetensors") for folder in (world / "theirs", tmp_path / "out/model"))
    for name, tensor in before.items():
        if name.endswith("A_log"):
            torch.testing.assert_close(after[name].exp(), factor * tensor.exp())
        else:
            assert torch.equal(after[name], tensor), name
    card, page = ((tmp_path / "out" / name).read_text() for name in ("model/README.md", "index.html"))
    assert "- repair: scale_a, without training" in card
    assert found["repair"] == {"layers": [0, 1], "numbers": [factor, factor], "trials": search["trials"]}
    said = f"A times {factor:g} in 2 layers"
    assert f"- chosen: {said}" in card
    assert "scale_a, without training" in page
    assert said in page
    again = content(tmp_path / "out")
    assert extended(world, tmp_path / "out", policy="scale_a", **UNTRAINED) == found
    assert content(tmp_path / "out") == again


def test_a_limit_of_dt_is_not_written(world: Path, tmp_path: Path) -> None:
    """Other libraries read with the limit, but generate without it."""
    imported = import_checkpoint(world / "theirs")
    model = repaired(imported.model, ClipDt(), (0.05, 0.05))
    assert isinstance(model, LanguageModel)
    with pytest.raises(CheckpointError, match=r"a repair changed \['dt_limit'\] of layer 0"):
        export_checkpoint(model, imported, tmp_path / "home")
    assert not (tmp_path / "home").exists()


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"policy": "reset_state"}, "changes how a model is read, and no checkpoint format can store that"),
        ({"policy": "restarts"}, "changes how a model is read, and no checkpoint format can store that"),
        ({"policy": "clip_dt"}, "limits dt, and other libraries drop this limit while they generate; use it in a fig"),
        ({"policy": "scale_a"}, "policy scale_a has no option --steps: it trains nothing"),
        ({"policy": "scale_a", "control": True}, "policy scale_a has no option --control: it trains nothing"),
        ({"policy": "scale_a", "p_zero": 0.0}, "policy scale_a has no option --p-zero: it trains nothing"),
        ({"policy": "scale_a", "batch_tokens": 64}, "policy scale_a has no option --batch-tokens: it trains nothing"),
        ({"policy": "tbtt", "by": "layer"}, "policy tbtt has no option --by"),
        ({"policy": "state_passing", "sigma": 0.1}, "policy state_passing has no option --sigma"),
        ({"policy": "scale_a", "model": "run"}, "is a run of ssm; to repair it, write a figure"),
    ],
)
def test_repairs_that_cannot_be_written(world: Path, tmp_path: Path, settings: dict[str, Any], said: str) -> None:
    if "--steps" not in said:
        settings = UNTRAINED | settings
    with pytest.raises(ConfigError, match=said):
        extended(world, tmp_path / "out", **settings)


def test_a_search_without_success_names_its_measure(world: Path, tmp_path: Path) -> None:
    never = {"policy": "scale_a", "measure": "paired_ratio", "in_context_tolerance": 0.0}
    found = extended(world, tmp_path / "out", **UNTRAINED | never)
    assert found["outcome"] == "nothing was gained"
    tried = found["repair"]["trials"]
    assert (
        found["reason"]
        == f"none of {tried} trials has a lower paired ratio at no more than 0% more perplexity in context"
    )
    assert found["repair"]["numbers"] == [None, None]
