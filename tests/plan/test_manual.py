"""The reference of config keys shows what the specs say, and docs/reference is up to date."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path

import pytest

from ssm.claims.quantity import QUANTITIES
from ssm.figures.plot import PLOTS
from ssm.plan.manual import FOLDER, manual
from ssm.specs.base import Spec
from ssm.specs.initial_states.base import SPECS as INITIAL_STATES
from ssm.specs.measurements.base import SPECS as MEASUREMENTS
from ssm.specs.mixers.base import SPECS as MIXERS
from ssm.specs.repairs.base import SPECS as REPAIRS
from ssm.specs.tasks.base import SPECS as TASKS

ROOT = Path(__file__).parents[2]
REGISTRIES: dict[str, Mapping[str, type[Spec]]] = {
    "measurements.md": MEASUREMENTS,
    "quantities.md": QUANTITIES,
    "plots.md": PLOTS,
    "tasks.md": TASKS,
    "repairs.md": REPAIRS,
    "models.md": MIXERS,
    "training.md": INITIAL_STATES,
}
NO_KEYS = {"kind", "task", "policy", "name"}  # the kind and the name of an entry


@pytest.fixture(scope="module")
def pages() -> dict[str, str]:
    return manual(ROOT / "config")


def test_the_committed_pages_are_up_to_date(pages: dict[str, str]) -> None:
    committed = {path.name: path.read_text(encoding="utf-8") for path in (ROOT / FOLDER).glob("*.md")}
    stale = [name for name in committed.keys() | pages.keys() if committed.get(name) != pages.get(name)]
    assert stale == [], "python -m ssm.plan.manual"


@pytest.mark.parametrize("page", REGISTRIES)
def test_every_kind_has_a_section_with_its_docstring_and_keys(page: str, pages: dict[str, str]) -> None:
    for kind, spec in REGISTRIES[page].items():
        (section,) = re.findall(rf"^## `{kind}`\n\n(.*?)(?=^## |\Z)", pages[page], re.M | re.S)
        assert section.split() != [], kind
        keys = {field.alias or name for name, field in spec.model_fields.items()} - NO_KEYS
        keys -= getattr(spec, "from_plan", frozenset())
        assert keys <= set(re.findall(r"^\| `(\w+)` \|", section, re.M)), kind


def test_a_key_has_its_type_default_and_meaning(pages: dict[str, str]) -> None:
    assert "| `sequences` | whole number, above 0, at most 100,000 | `16` | windows" in pages["repairs.md"]
    assert '| `scale` | `smoke` or `desk` or `gpu` or `paper` | `"smoke"` |' in pages["config.md"]
    assert "CPU threads of a training or measuring job" in pages["config.md"]
    (policies,) = (line for line in pages["config.md"].splitlines() if line.startswith("| `policy` |"))
    assert {"tbtt", "scale_a"} < {*re.findall(r"`(\w+)`", policies)}
    assert not {"reset_state", "restarts"} & {*re.findall(r"`(\w+)`", policies)}, "`ssm extend` refuses them"


def test_every_key_has_a_meaning(pages: dict[str, str]) -> None:
    lines = [line for page in pages.values() for line in page.splitlines()]
    assert [line for line in lines if line.startswith("| ") and line.endswith("|  |")] == []


def test_every_kind_in_a_config_file_has_an_example(pages: dict[str, str]) -> None:
    used = "".join(path.read_text(encoding="utf-8") for path in (ROOT / "config" / "figures").glob("*.yaml"))
    kinds = [kind for kind in MEASUREMENTS if f"kind: {kind}," in used or f"kind: {kind}}}" in used]
    assert len(kinds) >= 17
    for kind in kinds:
        section = pages["measurements.md"].partition(f"## `{kind}`\n")[2].partition("\n## ")[0]
        assert f"{{kind: {kind}" in section, kind
