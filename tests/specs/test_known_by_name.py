"""The plan and `measure.py` have no names of plug-ins in their code: they ask the specs."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from ssm.base.discovery import Registry
from ssm.specs import ffn, initial_states, measurements, mixers, repairs, tasks

ROOT = Path(__file__).parents[2]
FILES = [*(ROOT / "ssm" / "plan").glob("*.py"), ROOT / "ssm" / "evaluation" / "measure.py"]


@pytest.mark.parametrize("specs", [kind.SPECS for kind in (ffn, initial_states, measurements, mixers, repairs, tasks)])
def test_no_name_of_a_plugin_is_in_the_code(specs: Registry[type]) -> None:
    names = "|".join(rf"\"{name}\"|\b{spec.__name__}\b" for name, spec in specs.items())
    assert not [f"{path.name}: {name}" for path in FILES for name in re.findall(names, path.read_text())]
