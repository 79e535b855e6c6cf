"""The JSON schemas accept our config files, and the committed one is up to date."""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from jsonschema import Draft202012Validator

from ssm.cli.main import main
from ssm.plan.read import read_config
from ssm.plan.schemas import schemas as made

ROOT = Path(__file__).parents[2]
schemas = cache(made)  # they take a second


def config_files() -> list[tuple[str, Path]]:
    folder = ROOT / "config"
    plain = [(name, folder / f"{name}.yaml") for name in ("config", "models", "data", "training", "synthesis")]
    return [
        *plain,
        ("config", folder / "dry_run.yaml"),
        *(("figure", path) for path in folder.glob("figures/*.yaml")),
    ]


def test_the_committed_schema_is_up_to_date_and_the_others_are_written(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The others are large and change often, so that `make` writes them for editors. No plan is made."""
    assert main(["plan", "--schemas", str(tmp_path)]) == 0
    assert capsys.readouterr().out == ""
    found = {path.name.removesuffix(".schema.json"): json.loads(path.read_text()) for path in tmp_path.iterdir()}
    assert found == schemas()
    kept = json.loads((ROOT / "workflow/schemas/config.schema.json").read_text())
    assert kept == found["config"], "run `ssm plan --schemas workflow/schemas`"


@pytest.mark.parametrize(("name", "path"), config_files(), ids=lambda value: getattr(value, "stem", value))
def test_our_config_files_are_valid(name: str, path: Path) -> None:
    validator = Draft202012Validator(schemas()[name])
    assert not [f"{error.json_path}: {error.message[:200]}" for error in validator.iter_errors(read_config(path))]


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("config", {"scael": "smoke"}),
        ("config", {"scale": "huge"}),
        ("models", {"m": {"d_modl": 3}}),
        ("models", {"m": {"d_model": {"smoke": 3, "large": 4}}}),
        ("models", {"m": {"checkpoint": "mine"}}),
        ("models", {"m": {"published": {"checkpoint": "o/m"}}}),
        ("models", {"m": {"checkpoint": "mine", "text": []}}),
        ("models", {"m": {"checkpoint": "mine", "text": ["a"], "d_model": 3}}),
        ("training", {"recipes": {"r": {"context": {"smoke": "32"}}}}),
        ("figure", {"paper": "lg", "target": 3}),
    ],
)
def test_invalid_content_is_refused(name: str, value: dict[str, Any]) -> None:
    assert list(Draft202012Validator(schemas()[name]).iter_errors(value))


@pytest.mark.parametrize(
    "entry",
    [
        {"checkpoint": "mine", "text": ["a", "b"]},
        {"checkpoint": {"smoke": "small", "paper": "owner/large"}, "text": ["a"], "steps": {"smoke": 5, "paper": 100}},
        {"smoke": {"checkpoint": "mine", "text": ["a"], "control": True}},
    ],
)
def test_a_checkpoint_is_valid_in_models_yaml(entry: dict[str, Any]) -> None:
    models = read_config(ROOT / "config" / "models.yaml") | {"mine": entry}
    assert not list(Draft202012Validator(schemas()["models"]).iter_errors(models))
