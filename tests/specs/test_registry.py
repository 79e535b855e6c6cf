"""Registries: whoever forgets a place is told so in one line, which names the file."""

from __future__ import annotations

import importlib
import sys
from pathlib import Path

import pytest

from ssm.specs.registry import RegistryError

SPEC = """
from typing import ClassVar, Literal
from garden.specs.plants.base import PlantSpec
class {Name}(PlantSpec):
    colour: ClassVar[str] = "red"
    kind: Literal["{name}"] = "{name}"
    def height(self):
        return 1
"""
MODULE = """
from garden.modules.plants.base import Plant
class {Name}Plant(Plant):
    def grow(self):
        pass
"""
GARDEN = {
    "garden/__init__.py": "",
    "garden/specs/__init__.py": "",
    "garden/specs/plants/base.py": """
from abc import ABC, abstractmethod
from typing import ClassVar
from ssm.specs.base import Spec
class PlantSpec(Spec, ABC):
    colour: ClassVar[str]
    kind: str
    @abstractmethod
    def height(self): ...
""",
    "garden/specs/plants/__init__.py": """
from garden.specs.plants.oak import Oak
from garden.specs.plants.rose import Rose
from ssm.specs.registry import check_specs
SPECS = (
    Oak,
    Rose,
)
check_specs(__name__, SPECS, modules="garden.modules.plants")
""",
    "garden/modules/__init__.py": "",
    "garden/modules/plants/base.py": """
from abc import ABC, abstractmethod
class Plant(ABC):
    @abstractmethod
    def grow(self): ...
""",
    "garden/modules/plants/__init__.py": """
from garden.modules.plants.oak import OakPlant
from garden.modules.plants.rose import RosePlant
from garden.specs.plants import SPECS
from ssm.specs.registry import check_modules
PLANTS = {
    "oak": OakPlant,
    "rose": RosePlant,
}
check_modules(__name__, PLANTS, SPECS)
""",
} | {
    f"garden/{floor}/plants/{name}.py": text.format(name=name, Name=name.title())
    for floor, text in (("specs", SPEC), ("modules", MODULE))
    for name in ("oak", "rose")
}
SPECS, MODULES = "garden/specs/plants", "garden/modules/plants"


@pytest.fixture
def garden(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A package with two kinds of plants, complete."""
    for name, text in GARDEN.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    for name in [name for name in sys.modules if name.split(".")[0] == "garden"]:
        monkeypatch.delitem(sys.modules, name)
    return tmp_path


def without(path: Path, *lines: str) -> None:
    """Take lines out of a file, or the file away."""
    if not lines:
        path.unlink()
        return
    text = path.read_text()
    for line in lines:
        assert line in text
        text = text.replace(line + "\n", "")
    path.write_text(text)


def said(registry: str) -> str:
    """What the import of a registry is refused with: one line."""
    with pytest.raises(RegistryError) as error:
        importlib.import_module(registry.replace("/", "."))
    assert "\n" not in str(error.value)
    return str(error.value)


def test_a_complete_one_is_let_in(garden: Path) -> None:
    assert sorted(importlib.import_module("garden.modules.plants").PLANTS) == ["oak", "rose"]


def test_a_spec_without_its_line(garden: Path) -> None:
    without(garden / SPECS / "__init__.py", "from garden.specs.plants.rose import Rose", "    Rose,")
    assert said(SPECS) == f"{SPECS}/rose.py is in no registry: add its line in {SPECS}/__init__.py"


def test_a_spec_that_is_imported_but_not_listed(garden: Path) -> None:
    without(garden / SPECS / "__init__.py", "    Rose,")
    assert said(SPECS) == f"{SPECS}/__init__.py: no line for 'rose' of {SPECS}/rose.py"


def test_a_spec_without_a_module(garden: Path) -> None:
    without(garden / MODULES / "rose.py")
    place = f"add {MODULES}/rose.py, and its line in {MODULES}/__init__.py"
    assert said(SPECS) == f"{SPECS}/rose.py: the spec 'rose' has no module: {place}"


@pytest.mark.parametrize(
    ("lines", "lacks"),
    [
        (["    def height(self):", "        return 1"], "Rose lacks height"),
        (['    colour: ClassVar[str] = "red"'], "Rose lacks colour"),
        (['    kind: Literal["rose"] = "rose"'], "Rose needs the name of its file: kind: Literal['rose'] = 'rose'"),
    ],
)
def test_a_spec_that_lacks_an_answer(lines: list[str], lacks: str, garden: Path) -> None:
    without(garden / SPECS / "rose.py", *lines)
    assert said(SPECS) == f"{SPECS}/rose.py: {lacks}"


def test_a_module_without_its_line(garden: Path) -> None:
    lines = "from garden.modules.plants.rose import RosePlant", '    "rose": RosePlant,'
    without(garden / MODULES / "__init__.py", *lines)
    assert said(SPECS) == f"{MODULES}/rose.py is in no registry: add its line in {MODULES}/__init__.py"


def test_a_module_that_is_imported_but_not_listed(garden: Path) -> None:
    without(garden / MODULES / "__init__.py", '    "rose": RosePlant,')
    assert said(MODULES) == f"{MODULES}/__init__.py: no line for 'rose' of {SPECS}/rose.py"


def test_a_module_without_a_spec(garden: Path) -> None:
    without(garden / SPECS / "rose.py")
    without(garden / SPECS / "__init__.py", "from garden.specs.plants.rose import Rose", "    Rose,")
    place = f"add {SPECS}/rose.py, and its line in {SPECS}/__init__.py"
    assert said(MODULES) == f"{MODULES}/rose.py: the module 'rose' has no spec: {place}"


def test_a_module_that_lacks_a_method(garden: Path) -> None:
    without(garden / MODULES / "rose.py", "    def grow(self):")
    assert said(MODULES) == f"{MODULES}/rose.py: RosePlant lacks grow"


def test_a_module_under_another_name(garden: Path) -> None:
    registry = garden / MODULES / "__init__.py"
    registry.write_text(registry.read_text().replace('"rose": RosePlant', '"rose": OakPlant'))
    assert said(MODULES) == f"{MODULES}/__init__.py: 'rose' is in oak.py: it belongs into rose.py"


def test_a_lock_file_of_an_editor_is_no_spec(garden: Path) -> None:
    (garden / SPECS / ".#rose.py").write_text("")
    importlib.import_module("garden.specs.plants")
