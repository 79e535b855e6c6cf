"""Plug-ins in two files: who lacks the spec or the module is told so in one line, before the module is imported."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from ssm.base.discovery import RegistryError

FILES = {
    "__init__.py": "",
    "specs/__init__.py": """
from garden.specs.base import SPECS
from ssm.base.plugin_modules import check_files
SPECS.discover()
check_files(SPECS, "garden.beds")
""",
    "specs/base.py": """
from ssm.base.discovery import Registry
SPECS = Registry("garden.specs")
class Plant:
    def __init_subclass__(cls, kind):
        SPECS.add(kind, cls)
""",
    "beds/__init__.py": "from garden.beds.tools import BEDS\nBEDS.discover()\n",
    "beds/tools.py": """
from collections.abc import Callable
from garden.specs import SPECS
from ssm.base.plugin_modules import Modules
BEDS = Modules("garden.beds", SPECS)
""",
}
SPEC = "from garden.specs.base import Plant\nclass Spec(Plant, kind='{name}'): pass\n"
MODULE = "from functools import partial\nfrom garden.beds.tools import BEDS\n@BEDS.function\ndef {name}(): pass\n"


@pytest.fixture
def garden(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A package with specs and modules of two plants, and a file that the modules share."""
    files = FILES | {f"specs/{name}.py": SPEC.format(name=name) for name in ("oak", "rose")}
    for name, text in (files | {f"beds/{name}.py": MODULE.format(name=name) for name in ("oak", "rose")}).items():
        (tmp_path / "garden" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "garden" / name).write_text(text)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    for name in [name for name in sys.modules if name.split(".")[0] == "garden"]:
        monkeypatch.delitem(sys.modules, name)
    return tmp_path / "garden"


def test_a_module_is_found_by_its_name(garden: Path) -> None:
    importlib.import_module("garden.beds")
    assert sorted(sys.modules["garden.beds.tools"].BEDS) == ["oak", "rose"]


@pytest.mark.parametrize(
    ("change", "package", "said"),
    [
        (
            lambda garden: (garden / "beds/rose.py").unlink(),
            "garden.specs",
            "garden/specs/rose.py: 'rose' has no module: add garden/beds/rose.py",
        ),
        (
            lambda garden: (garden / "specs/rose.py").unlink(),
            "garden.beds",
            "garden/beds/rose.py: 'rose' has no spec: add garden/specs/rose.py",
        ),
        (
            lambda garden: (garden / "beds/rose.py").write_text(MODULE.format(name="tulip")),
            "garden.beds",
            "garden/beds/rose.py: tulip is 'tulip', so its file must be garden/beds/tulip.py",
        ),
        (
            lambda garden: (garden / "beds/rose.py").write_text(""),
            "garden.beds",
            "garden/beds/rose.py: registers nothing with the name 'rose'",
        ),
        (
            lambda garden: (garden / "beds/rose.py").write_text(MODULE.format(name="rose").replace("@", "@partial\n@")),
            "garden.beds",
            "garden/beds/rose.py: 'rose' has a decorator above the one that registers it",
        ),
    ],
)
def test_what_is_wrong_is_one_line_that_names_the_file(
    change: Callable[[Path], object], package: str, said: str, garden: Path
) -> None:
    change(garden)
    with pytest.raises(RegistryError) as error:
        importlib.import_module(package)
    assert str(error.value) == said
