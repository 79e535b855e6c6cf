"""JSON schemas of the config files, made from the specs. Editors use them."""

from __future__ import annotations

import copy
import json
from pathlib import Path
from typing import Any

from ssm.base.files import write_text
from ssm.claims.synthesis import Synthesis
from ssm.figures.figure import FigureSpec
from ssm.plan.library import NamedModel, TrainingFile
from ssm.specs.base import SCALES, Spec
from ssm.specs.checkpoint import CheckpointSpec
from ssm.specs.config import WorkflowConfig
from ssm.specs.data import Data, DataSpec
from ssm.specs.tasks import SPECS as TASKS


def schemas() -> dict[str, dict[str, Any]]:
    """Name -> JSON schema, for every kind of config file."""
    figure = _schema(FigureSpec, "A figure or table: runs, measurements, plots, claims")
    figure["required"].remove("target")  # the name of the file
    for made in ("Member", "AxisValue"):  # made from a grid, never written into a file
        del figure["$defs"][made]
    del figure["$defs"]["ArmEntry"]["properties"]["member"]
    return {
        "config": _dialect(_schema(WorkflowConfig, "The workflow's configuration")),
        "models": _dialect(_by_scale(_named("Named models", NamedModel, CheckpointSpec))),
        "data": _dialect(_by_scale(_named("Named data sets", DataSpec, *TASKS.values()))),
        "training": _dialect(_by_scale(_schema(TrainingFile, "Training recipes and initial states"))),
        "figure": _dialect(_by_scale(figure)),
        "synthesis": _dialect(_schema(Synthesis, "The sentences of the page of findings")),
    }


def write_schemas(folder: str | Path) -> None:
    """Write every schema as `<name>.schema.json`."""
    for name, schema in schemas().items():
        write_text(Path(folder) / f"{name}.schema.json", json.dumps(schema, indent=2) + "\n")


def _schema(kind: type[Spec], title: str) -> dict[str, Any]:
    return kind.model_json_schema(by_alias=True) | {"title": title}


def _named(title: str, *kinds: type[NamedModel] | type[CheckpointSpec] | type[Data]) -> dict[str, Any]:
    """The schema of a file whose entries each have one of the kinds. An entry's name is its key."""
    definitions: dict[str, Any] = {}
    for kind in kinds:
        entry = kind.model_json_schema(by_alias=True)
        definitions |= entry.pop("$defs", {})
        del entry["properties"]["name"]
        entry["required"].remove("name")
        definitions[kind.__name__] = entry
    entries = [{"$ref": f"#/$defs/{kind.__name__}"} for kind in kinds]
    entry = entries[0] if len(entries) == 1 else {"anyOf": entries}
    return {"title": title, "type": "object", "additionalProperties": entry, "$defs": definitions}


def _by_scale(schema: dict[str, Any]) -> dict[str, Any]:
    """The schema in which every value can also be a choice by scale."""
    schema = copy.deepcopy(schema)
    for part in (schema, *schema.get("$defs", {}).values()):
        _open_values(part)
    return schema


def _open_values(schema: dict[str, Any]) -> None:
    for name, value in schema.get("properties", {}).items():
        schema["properties"][name] = _or_choice(value)
    for key in ("additionalProperties", "items"):
        if isinstance(schema.get(key), dict):
            schema[key] = _or_choice(schema[key])
    for key in ("anyOf", "oneOf"):
        for option in schema.get(key, []):
            _open_values(option)


def _or_choice(schema: dict[str, Any]) -> dict[str, Any]:
    _open_values(schema)
    if schema.get("const") is not None:
        return schema  # a kind is the same at every scale
    note = {key: schema[key] for key in ("title", "description", "default") if key in schema}
    bare = {key: value for key, value in schema.items() if key not in note}
    options = dict.fromkeys(SCALES, bare)
    choice = {"type": "object", "properties": options, "additionalProperties": False, "minProperties": 1}
    return note | {"anyOf": [bare, choice]} if bare else schema


def _dialect(schema: dict[str, Any]) -> dict[str, Any]:
    return {"$schema": "https://json-schema.org/draft/2020-12/schema"} | schema
