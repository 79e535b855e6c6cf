"""A hash of code changes with every file that a module needs, and with no other."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from ssm.base import code
from ssm.base.code import code_hash, needed_by

FILES = {
    "ssm/__init__.py": "",
    "ssm/cli/__init__.py": "",
    "ssm/cli/plot.py": "def run():\n    from ssm.figures import (\n        draw,  # it draws\n    )\n",
    "ssm/figures/__init__.py": "import ssm.base.files\n",
    "ssm/figures/style.py": "",
    "ssm/figures/draw.py": "from ssm.figures import circle  # a module\n",
    "ssm/figures/circle.py": "import ssm.figures.draw\nfrom ssm.figures.kinds import KINDS\n",
    "ssm/figures/kinds/__init__.py": "KINDS.discover()\n",
    "ssm/figures/kinds/dot.py": "from ssm.figures import style\n",
    "ssm/figures/alone.py": "",
    "ssm/figures/page.html.j2": "",
    "ssm/base/__init__.py": "",
    "ssm/base/files.py": '"""As ssm.training.loop says."""\n',
    "ssm/training/__init__.py": "",
    "ssm/training/loop.py": "",
    "ssm/training/page.html.j2": "",
}
NEEDED = {
    *("ssm", "ssm.cli", "ssm.cli.plot", "ssm.figures", "ssm.figures.draw", "ssm.figures.circle"),
    *("ssm.figures.kinds", "ssm.figures.kinds.dot", "ssm.figures.style", "ssm.base", "ssm.base.files"),
}


def forget() -> None:
    for cached in (code.code_hash, code._imports, code._modules):
        cached.cache_clear()


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    for name, text in FILES.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    monkeypatch.setattr(code, "ROOT", tmp_path)
    forget()
    yield tmp_path
    forget()


def test_all_that_is_imported_is_needed(package: Path) -> None:
    assert needed_by("ssm.cli.plot") == NEEDED
    assert needed_by("ssm.cli.plot", without="ssm.figures.kinds") == NEEDED - {
        *("ssm.figures.kinds", "ssm.figures.kinds.dot", "ssm.figures.style"),
    }


def test_a_verdict_depends_on_no_code_that_draws() -> None:
    judge = needed_by("ssm.cli.judge", without="ssm.figures.plots")
    assert {name for name in judge if name.startswith("ssm.figures.")} == {"ssm.figures.figure", "ssm.figures.grid"}
    assert {"ssm.claims.quantities.slope", "ssm.base.columns", "ssm.specs.measurements"} <= judge


@pytest.mark.parametrize(
    "package", ["ssm.specs.mixers", "ssm.specs.measurements", "ssm.specs.tasks", "ssm.claims.quantities"]
)
def test_a_package_that_lists_its_folder_needs_all_of_its_modules(package: str) -> None:
    folder = code.ROOT / package.replace(".", "/")
    assert {f"{package}.{path.stem}" for path in folder.glob("*.py") if path.stem != "__init__"} <= needed_by(package)


@pytest.mark.parametrize("name", FILES)
def test_the_hash_changes_with_what_is_needed(name: str, package: Path) -> None:
    before = code_hash("ssm.cli.plot")
    with (package / name).open("a") as file:
        file.write("\n")
    forget()
    module = name.removesuffix(".py").removesuffix("/__init__").replace("/", ".")
    assert (code_hash("ssm.cli.plot") != before) == (module in NEEDED or name == "ssm/figures/page.html.j2")


def test_the_hash_is_the_same_wherever_the_package_lies(package: Path) -> None:
    before = code_hash("ssm.cli.plot")
    forget()
    moved = package.parent / f"{package.name} moved"
    package.rename(moved)
    code.ROOT = moved
    assert code_hash("ssm.cli.plot") == before
