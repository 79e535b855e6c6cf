"""The layers: a file imports only from the layers below its own, and some packages never need torch."""

from __future__ import annotations

import ast
import re
import sys
from collections.abc import Mapping
from functools import cache
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest
from layer_picture import GUIDE, drawn, flowchart
from python_imports import imports

from ssm.base.code import DISCOVERS, needed_by

ROOT = Path(__file__).parents[1]
BENCHMARKS = "ssm_kernels.benchmarks"  # in the folder of the kernels, but in the top layer: they also measure models
# The packages of ssm, lowest first, with one line for each layer of the README. A package imports only earlier ones.
LAYERS = (
    ("base", "specs"),
    ("models", "data"),
    ("training", "evaluation"),
    ("claims", "figures", "report", "watch"),
    ("plan",),
    ("benchmarks", "diagnosis", "extension", "harness", "cli"),
)
ORDER = [package for layer in LAYERS for package in layer]
WITHOUT_TORCH = ("specs", "claims", "figures", "report", "watch", "plan")
KERNELS = ("torch", "triton", "ssm_kernels")  # besides the standard library, the only packages that the kernels need


def modules(package: str, folder: Path) -> dict[str, Path]:
    """Name -> file of every module of a package."""
    found = {}
    for path in sorted((folder / package.replace(".", "/")).rglob("*.py")):
        parts = path.relative_to(folder).with_suffix("").parts
        found[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path
    return found


SSM = modules("ssm", ROOT) | modules(BENCHMARKS, ROOT / "kernels")


@cache
def imported(code: str) -> frozenset[str]:
    """All imports of some code of ssm."""
    return frozenset(imports(ast.parse(code), SSM))


def layer_of(module: str) -> str:
    """The package below ssm or ssm_kernels of a module. Modules directly in ssm belong to the top layer."""
    parts = module.split(".")
    return parts[1] if len(parts) > 1 and parts[1] != "__main__" else "cli"


def from_above(module: str, code: str) -> list[str]:
    """The imports of a module that are not from a lower layer."""
    own, wrong = layer_of(module), []
    for name in sorted(imported(code)):
        layer = layer_of(name)
        if name.startswith(("ssm.", BENCHMARKS)) and layer != own and ORDER.index(layer) >= ORDER.index(own):
            wrong.append(name)
    return wrong


def discovered(module: str, text: str) -> list[str]:
    """The modules of a package that imports all files of its folder."""
    return [name for name in SSM if name.startswith(f"{module}.")] if DISCOVERS.search(text) else []


@cache
def imports_of(module: str, late: bool) -> tuple[str, ...]:
    """The modules that a module of ssm imports; `late`: also when its functions are called."""
    text = SSM[module].read_text()
    return (*imports(ast.parse(text), SSM, types=False, late=late), *discovered(module, text))


@cache
def needs(module: str, late: bool = True) -> frozenset[str]:
    """All modules that an import of this module imports; `late`: also when functions are called."""
    found: set[str] = set()
    waiting = [module]
    while waiting:
        name = waiting.pop()
        for part in (part for part in with_packages(name) if part not in found):
            found.add(part)
            if part in SSM:
                waiting += imports_of(part, late)
    return frozenset(found)


def with_packages(module: str) -> list[str]:
    """A module, and the packages that are imported with it."""
    return [module.rsplit(".", count)[0] for count in range(module.count(".") + 1)]


def circle(texts: Mapping[str, str]) -> list[str]:
    """Modules that import each other in a circle; empty if there is no circle.

    An import of a module also imports its packages. Packages that contain the importing module do not count.

    Args:
        texts: the code of all modules by name.
    """
    graph: dict[str, set[str]] = {}
    for module, text in texts.items():
        found = {part for name in imported(text) for part in with_packages(name) if part in texts}
        graph[module] = (found - set(with_packages(module))) | set(discovered(module, text))
    try:
        TopologicalSorter(graph).prepare()
    except CycleError as error:
        return list(error.args[1])
    return []


def test_no_imports_form_a_circle() -> None:
    assert circle({name: path.read_text() for name, path in SSM.items()}) == []


@pytest.mark.parametrize(
    ("module", "code"),
    [
        ("ssm.claims.families", "from ssm.claims.claim import ClaimSpec"),
        ("ssm.claims.families", "from ssm.claims import claim"),
        ("ssm.claims.families", "if TYPE_CHECKING:\n    from ssm.claims.claim import ClaimSpec"),
        ("ssm.claims.sweep", "def f():\n    from ssm.claims.quantities import QuantitySpec"),
        ("ssm.claims.quantity", "from ssm.claims.quantities.slope import Slope"),
    ],
)
def test_a_circle_is_found(module: str, code: str) -> None:
    texts = {name: path.read_text() for name, path in SSM.items()}
    assert module in circle(texts | {module: f"{texts[module]}\n{code}\n"})


def test_every_package_is_in_a_layer() -> None:
    assert sorted(ORDER) == sorted({layer_of(name) for name in SSM} | {"cli"}), "add it to LAYERS and to README.md"


def test_no_module_imports_from_above() -> None:
    wrong = {name: from_above(name, path.read_text()) for name, path in SSM.items()}
    assert not {name: found for name, found in wrong.items() if found}


@pytest.mark.parametrize(
    ("module", "code", "found"),
    [
        ("ssm.specs.mixers.gru", "from ssm.models.mixers import gru", ["ssm.models.mixers.gru"]),
        ("ssm.plan.plan", "def f():\n    import ssm.cli.main", ["ssm.cli.main"]),
        ("ssm.models.device", "from ssm_kernels.benchmarks import race", ["ssm_kernels.benchmarks.race"]),
        ("ssm.models.state", "if TYPE_CHECKING:\n    from ssm.data import store", ["ssm.data.store"]),
        ("ssm.plan.plan", "import torch\nfrom ssm.plan import read\nfrom ssm.specs import data\nimport ssm", []),
    ],
)
def test_an_import_from_above_is_found(module: str, code: str, found: list[str]) -> None:
    assert from_above(module, code) == found


@pytest.mark.parametrize("package", WITHOUT_TORCH)
def test_these_packages_never_need_torch(package: str) -> None:
    """Neither directly, nor through other modules of ssm, nor inside functions."""
    own = [name for name in SSM if layer_of(name) == package]
    assert own
    assert not [name for name in own if needs(name) & {"torch", "ssm_kernels"}]


def test_base_needs_torch_only_to_launch_processes() -> None:
    assert not [name for name in SSM if layer_of(name) == "base" and "torch" in needs(name, late=False)]
    assert [name for name in SSM if layer_of(name) == "base" and "torch" in needs(name)] == ["ssm.base.launch"]


def test_modules_that_need_torch_are_found() -> None:
    assert "torch" in needs("ssm.evaluation.measure")
    assert "ssm.models.mixers" in needs("ssm.models.mixers.base"), "an import of a module also imports its package"


@pytest.mark.parametrize("verb", ["plot", "judge", "report"])
def test_needed_by_finds_the_code_of_pictures_and_pages(verb: str) -> None:
    """`needed_by` searches the text. It finds all modules that a parser finds, and none that trains or measures."""
    found = needed_by(f"ssm.cli.{verb}")
    assert found >= needs(f"ssm.cli.{verb}") & set(SSM)
    assert not {layer_of(name) for name in found} & {"models", "data", "training", "evaluation", "plan"}


def test_the_kernels_import_only_torch_and_triton() -> None:
    """Adapters to mamba_ssm and fla import these packages by name, when they are used."""
    kernels = modules("ssm_kernels", ROOT / "kernels")
    kernels = {name: path for name, path in kernels.items() if not name.startswith(BENCHMARKS)}
    imported = {name for path in kernels.values() for name in imports(ast.parse(path.read_text()), SSM | kernels)}
    found = {name if name.startswith(BENCHMARKS) else name.split(".")[0] for name in imported}
    assert "torch" in found
    assert not found - set(KERNELS) - set(sys.stdlib_module_names)


def packages() -> dict[str, set[str]]:
    """The packages that each package imports, including the kernels and their benchmarks."""
    found: dict[str, set[str]] = {"kernels": set()}
    for module, path in SSM.items():
        own = found.setdefault(layer_of(module), set())
        for name in imported(path.read_text()):
            if name.split(".")[0] == "ssm_kernels" and not name.startswith(BENCHMARKS):
                own.add("kernels")
            elif name.startswith(("ssm.", BENCHMARKS)):
                own.add(layer_of(name))
    return {package: others - {package} for package, others in found.items()}


def test_the_guide_shows_these_layers() -> None:
    text = GUIDE.read_text(encoding="utf-8")
    assert text == drawn(text, packages()), "run: python tests/layer_picture.py"


def test_the_picture_of_layers_has_no_implied_arrows() -> None:
    graph = {"top": {"middle", "base"}, "middle": {"base"}, "beside": {"base"}, "base": set[str]()}
    arrows = flowchart(graph).splitlines()[2:-1]
    assert arrows == ["    beside --> base", "    middle --> base", "    top --> middle"]


def test_the_readme_shows_these_layers() -> None:
    text = (ROOT / "README.md").read_text()
    drawing = text[text.index("## How it is built") :].split("```")[1]
    for number, layer in enumerate(LAYERS):
        (lines,) = re.findall(rf"^{number}  .*(?:\n   .*)*", drawing, re.M)  # up to the next line with a number
        assert set(layer) <= set(re.findall(r"\w+", lines))
