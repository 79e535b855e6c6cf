"""What ssm imports is what pyproject.toml declares, and who diagnoses and extends needs no workflow engine."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

from ssm.claims import snakemake_command
from ssm.models.foreign.cache import FLOOR

ROOT = Path(__file__).parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
CALLED = {"fla": "flash-linear-attention", "PIL": "pillow", "sklearn": "scikit-learn", "yaml": "pyyaml"}
OWN = {"ssm", "ssm_kernels"}
BROUGHT = {"pydantic-core", "typing-extensions"}  # by pydantic
ASKED_FOR = {"lm-eval", "triton"}  # imported at once by modules that are imported where they are wanted
BLOCKED = ("snakemake", "pygments", "sklearn", "psutil", "jsonschema", "lm_eval", "datasets", "transformers", "fla")
BLOCKER = f"""
import sys
class Blocker:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0].partition("_interface")[0] in {BLOCKED}:
            raise ImportError(name + " is not here")
sys.meta_path.insert(0, Blocker())
from ssm.cli.main import main
for verb in ("diagnose", "extend", "evaluate"):
    try:
        main([verb, "--help"])
    except SystemExit as ended:
        assert not ended.code
import ssm.diagnosis, ssm.extension, ssm.evaluation.measure
"""


def packages(requirements: list[str]) -> set[str]:
    return {re.match(r"[\w-]+", requirement).group().lower().replace("_", "-") for requirement in requirements}  # type: ignore[union-attr]


def third_party(tree: ast.AST, late: bool) -> Iterator[str]:
    """The packages that code imports; `late`: also in functions, and for type checks (ssm/base/lazy.py)."""
    for node in ast.iter_child_nodes(tree):
        for_types = isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING"
        if (for_types or isinstance(node, ast.FunctionDef)) and not late:
            continue
        names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
        names += [str(node.module)] if isinstance(node, ast.ImportFrom) else []
        yield from (name.split(".")[0] for name in names)
        yield from third_party(node, late)


@cache
def imported(late: bool) -> dict[str, set[str]]:
    """Package -> the files that import it."""
    found: dict[str, set[str]] = {}
    for path in [*(ROOT / "ssm").rglob("*.py"), *(ROOT / "kernels").rglob("*.py")]:
        for name in third_party(ast.parse(path.read_text()), late):
            if name not in OWN | set(sys.stdlib_module_names):
                found.setdefault(name, set()).add(str(path.relative_to(ROOT)))
    return found


def declared(name: str) -> str:
    return CALLED.get(name, name.replace("_", "-"))


CORE = packages(PROJECT["dependencies"])
EXTRAS = {name: packages(wanted) for name, wanted in PROJECT["optional-dependencies"].items()}


def test_what_is_imported_is_declared() -> None:
    at_once = {declared(name): files for name, files in imported(late=False).items()}
    ever = {declared(name): files for name, files in imported(late=True).items()}
    assert not {name: at_once[name] for name in at_once.keys() - CORE - BROUGHT - ASKED_FOR}
    assert not {name: ever[name] for name in ever.keys() - CORE - BROUGHT - set().union(*EXTRAS.values())}


def test_nothing_is_installed_by_default_that_nothing_imports() -> None:
    assert not CORE - {declared(name) for name in imported(late=True)}
    assert EXTRAS["workflow"] == {"snakemake", "psutil", "pygments", "scikit-learn"}


def test_who_diagnoses_extends_or_measures_needs_no_workflow_engine() -> None:
    done = subprocess.run([sys.executable, "-c", BLOCKER], capture_output=True, text=True, check=False, timeout=300)
    assert done.returncode == 0, done.stderr
    assert all(f"usage: ssm {verb}" in done.stdout for verb in ("diagnose", "extend", "evaluate"))


def test_what_the_workflow_makes_is_named_with_how_to_install_it(monkeypatch: pytest.MonkeyPatch) -> None:
    assert snakemake_command.snakemake_command("lg_fig5") == "snakemake lg_fig5"
    monkeypatch.setattr(snakemake_command, "find_spec", lambda name: None)
    assert snakemake_command.snakemake_command("lg_fig5") == "pip install 'ssm-length[workflow]' && snakemake lg_fig5"


def test_the_first_command_of_the_readme_installs_the_workflow() -> None:
    recipes = (ROOT / "Makefile").read_text()
    figures = recipes[recipes.index("$(VENV)/.installed: ") :].partition("\n\n")[0]
    assert "install -c constraints.txt -e '.[workflow]'" in figures
    assert "ssm-length[workflow]" in PROJECT["optional-dependencies"]["slurm"]
    assert "ssm-length[slurm]" in PROJECT["optional-dependencies"]["dev"]


def test_the_transformers_that_is_asked_for_is_the_declared_one() -> None:
    assert f"transformers>={FLOOR}" in PROJECT["optional-dependencies"]["bench"]
