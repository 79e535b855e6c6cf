"""Plug-ins: a folder is listed, each file registers itself under its own name, and what is wrong is one line."""

from __future__ import annotations

import importlib
import sys
from pathlib import Path

import pytest

from ssm.base.discovery import RegistryError

BASE = """
from abc import ABC, abstractmethod
from typing import ClassVar
from ssm.base.discovery import Registry
from ssm.specs.base import Spec
PLANTS = Registry("garden.plants")
class Plant(Spec, ABC):
    colour: ClassVar[str]
    kind: str
    @classmethod
    def __pydantic_init_subclass__(cls) -> None:
        PLANTS.add_spec(cls, "kind")
    @abstractmethod
    def height(self): ...
"""
PLANT = """
from typing import ClassVar, Literal
from garden.base import Plant
class {Name}(Plant):
    colour: ClassVar[str] = "red"
    kind: Literal["{name}"] = "{name}"
    def height(self): return 1
"""
INIT = "from garden.base import PLANTS\nPLANTS.discover()\n"


@pytest.fixture
def plants(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of a package with two kinds of plants, and what editors leave there."""
    files = {"__init__.py": "", "base.py": BASE, "plants/__init__.py": INIT, "plants/.#rose.py": "<<<"}
    for name, text in (
        files | {f"plants/{n}.py": PLANT.format(name=n, Name=n.title()) for n in ("oak", "rose")}
    ).items():
        (tmp_path / "garden" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "garden" / name).write_text(text)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    for name in [name for name in sys.modules if name.split(".")[0] == "garden"]:
        monkeypatch.delitem(sys.modules, name)
    return tmp_path / "garden" / "plants"


def test_nobody_edits_a_list(plants: Path) -> None:
    importlib.import_module("garden.plants")
    assert list(sys.modules["garden.base"].PLANTS) == ["oak", "rose"]


def test_a_file_that_is_shared_says_so_itself(plants: Path) -> None:
    (plants / "soil.py").write_text("HELPER = True\n")
    importlib.import_module("garden.plants")
    assert list(sys.modules["garden.base"].PLANTS) == ["oak", "rose"]


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ('"rose"', '"oak"', "Rose is 'oak', so its file must be garden/plants/oak.py"),
        ('Literal["rose"]', 'Literal["oak"]', 'Rose must have the field kind: Literal\\["rose"\\] = "rose"'),
        ('Literal["rose"]', "str", 'Rose must have the field kind: Literal\\["rose"\\] = "rose"'),
        ("class Rose", "class Tulip(Plant):\n    kind: Literal['rose'] = 'rose'\nclass Rose", "Rose and another class"),
        ("    def height(self): return 1\n", "", "Rose lacks height"),
        ('    colour: ClassVar[str] = "red"\n', "", "Rose lacks colour"),
        ("height(self)", "height(self", r".*\(rose.py, line \d+\)"),
        ("from garden.base", "import shrub\nfrom garden.base", "No module named 'shrub'"),
        (
            PLANT.format(name="rose", Name="Rose"),
            "",
            "registers nothing with the name 'rose'; a file of helpers has HELPER = True",
        ),
    ],
)
def test_what_is_wrong_is_one_line_that_names_the_file(old: str, new: str, said: str, plants: Path) -> None:
    path = plants / "rose.py"
    assert old in path.read_text()
    path.write_text(path.read_text().replace(old, new))
    with pytest.raises(RegistryError, match=f"^garden/plants/rose.py: {said}") as error:
        importlib.import_module("garden.plants")
    assert "\n" not in str(error.value)
