"""The packages that ssm imports are declared in pyproject.toml, and `ssm diagnose` needs no workflow engine."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
import tomllib
from functools import cache
from pathlib import Path

import pytest
from python_imports import imports

from ssm.claims import snakemake_command
from ssm.models.foreign.cache import OLDEST_TRANSFORMERS

ROOT = Path(__file__).parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
CALLED = {"fla": "flash-linear-attention", "PIL": "pillow", "sklearn": "scikit-learn", "yaml": "pyyaml"}
OWN = {"ssm", "ssm_kernels"}
BROUGHT = {"pydantic-core", "typing-extensions"}  # requirements of pydantic
OPTIONAL = {"lm-eval", "triton"}  # imported at the top of modules that are themselves imported only when needed
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


@cache
def trees() -> dict[Path, ast.AST]:
    paths = [*(ROOT / "ssm").rglob("*.py"), *(ROOT / "kernels").rglob("*.py")]
    return {path: ast.parse(path.read_text()) for path in paths}


@cache
def imported(late: bool) -> dict[str, set[str]]:
    """Package -> the files that import it at the top; `late`: also in functions and for type checks."""
    files: dict[str, set[str]] = {}
    for path, tree in trees().items():
        for name in {module.split(".")[0] for module in imports(tree, {}, types=late, late=late)}:
            if name not in OWN and name not in sys.stdlib_module_names:
                files.setdefault(name, set()).add(str(path.relative_to(ROOT)))
    return files


def declared(name: str) -> str:
    return CALLED.get(name, name.replace("_", "-"))


CORE = packages(PROJECT["dependencies"])
EXTRAS = {name: packages(wanted) for name, wanted in PROJECT["optional-dependencies"].items()}


def test_imported_packages_are_declared() -> None:
    at_once = {declared(name): files for name, files in imported(late=False).items()}
    ever = {declared(name): files for name, files in imported(late=True).items()}
    assert not {name: at_once[name] for name in at_once.keys() - CORE - BROUGHT - OPTIONAL}
    assert not {name: ever[name] for name in ever.keys() - CORE - BROUGHT - set().union(*EXTRAS.values())}


def test_every_default_requirement_is_imported() -> None:
    assert not CORE - {declared(name) for name in imported(late=True)}
    assert EXTRAS["workflow"] == {"snakemake", "psutil", "pygments", "scikit-learn"}


def test_diagnose_extend_and_evaluate_need_no_workflow_engine() -> None:
    done = subprocess.run([sys.executable, "-c", BLOCKER], capture_output=True, text=True, check=False, timeout=300)
    assert done.returncode == 0, done.stderr
    assert all(f"usage: ssm {verb}" in done.stdout for verb in ("diagnose", "extend", "evaluate"))


def test_a_command_of_the_workflow_is_shown_with_its_installation(monkeypatch: pytest.MonkeyPatch) -> None:
    assert snakemake_command.snakemake_command("lg_fig5", "gpu") == "snakemake --cores all lg_fig5 --config scale=gpu"
    monkeypatch.setattr(snakemake_command, "find_spec", lambda name: None)
    command = snakemake_command.snakemake_command("lg_fig5", "smoke")
    assert command == "pip install '.[workflow]' && snakemake --cores all lg_fig5 --config scale=smoke"


def test_make_figures_installs_the_workflow() -> None:
    recipes = (ROOT / "Makefile").read_text()
    figures = recipes[recipes.index("$(VENV)/.installed: ") :].partition("\n\n")[0]
    assert "install -c constraints.txt -e '.[workflow]'" in figures
    assert "ssm-length[workflow]" in PROJECT["optional-dependencies"]["slurm"]
    assert "ssm-length[slurm]" in PROJECT["optional-dependencies"]["dev"]


def test_the_oldest_transformers_for_foreign_models_is_declared() -> None:
    assert f"transformers>={OLDEST_TRANSFORMERS}" in PROJECT["optional-dependencies"]["bench"]


def test_all_requirements_are_pinned() -> None:
    """constraints.txt has exact versions and names no package index."""
    lines = [line for line in (ROOT / "constraints.txt").read_text().splitlines() if line and line[0] != "#"]
    assert all(line.count("==") == 1 and "+" not in line and "/" not in line for line in lines)
    wanted = CORE.union(*(EXTRAS[name] for name in ("dev", "slurm", "bench", "workflow", "harness")))
    wanted -= {"triton"}  # each CUDA build of torch needs a version of its own
    assert wanted <= packages(lines) | {PROJECT["name"]}
