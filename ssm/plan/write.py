"""The plan on disk: a JSON file per spec, which is all that a job knows of the plan."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

from ssm.base.files import write_text
from ssm.plan.plan import Plan
from ssm.specs.base import Spec


def spec_files(plan: Plan) -> dict[str, Spec]:
    """Every spec of a plan by its path below the specs folder, such as `runs/<id>.json`."""
    shelves: dict[str, Mapping[str, Spec]] = {
        "data": plan.data,
        "runs": plan.runs,
        "measurements": plan.measurements,
        "figures": plan.figures,
    }
    return {f"{folder}/{name}.json": spec for folder, specs in shelves.items() for name, spec in specs.items()}


def write_specs(plan: Plan, folder: str | Path) -> int:
    """Write every spec below `folder`; a file that holds its content already is left alone.

    Returns:
        How many files were written.

    Raises:
        OutputError: the folder cannot be written.
    """
    written = 0
    for name, spec in spec_files(plan).items():
        path = Path(folder) / name
        text = json.dumps(spec.content(), indent=2, sort_keys=True) + "\n"
        if not path.is_file() or path.read_bytes() != text.encode():
            write_text(path, text)
            written += 1
    return written
