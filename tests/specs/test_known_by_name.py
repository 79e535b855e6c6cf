"""The plan knows nothing by name that can be added: what it asks, every spec answers."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from ssm.base.discovery import Registry
from ssm.specs import ffn, initial_states, measurements, mixers, repairs, tasks

ROOT = Path(__file__).parents[2]
FILES = [*(ROOT / "ssm" / "plan").glob("*.py"), ROOT / "ssm" / "evaluation" / "measure.py"]


@pytest.mark.parametrize("specs", [one.SPECS for one in (ffn, initial_states, measurements, mixers, repairs, tasks)])
def test_the_plan_and_the_measuring_know_none_by_name(specs: Registry[type]) -> None:
    names = "|".join(rf"\"{name}\"|\b{spec.__name__}\b" for name, spec in specs.items())
    assert not [f"{path.name}: {found}" for path in FILES for found in re.findall(names, path.read_text())]
