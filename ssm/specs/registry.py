"""Registries: what can be added has a file of its name on every floor, and a line in the registry of each floor.

Whoever forgets a place is told so when the registry is imported: one line that names the file. Registries of specs
are looked at by every verb, so that nothing is missed before the plan is made; those of modules when a model is built.
"""

from __future__ import annotations

import ast
import sys
from collections.abc import Callable, Collection, Mapping, Sequence
from pathlib import Path
from typing import Any

from ssm.base.errors import UserError
from ssm.specs.base import Spec

Module = type | Callable[..., Any]


class RegistryError(UserError):
    """A place that belongs to a new thing was forgotten."""


def kind_of(spec: type[Spec], key: str = "kind") -> str:
    """The name of a spec's class in config files, where it stands under `key`, and of all of its files."""
    field = spec.model_fields.get(key)
    return str(field.default) if field is not None else ""


def check_specs(registry: str, specs: Sequence[type[Spec]], modules: str | Sequence[str], key: str = "kind") -> None:
    """Whether the specs of a registry are complete, and all that are there are in it.

    Args:
        registry: the package that holds specs, a file each, and lists them.
        specs: those that it lists.
        modules: the package, or several, that hold a module for each of them, and list them. None is imported: modules
            need torch. What is looked at is the text, so that a line that lacks is missed before the work.
        key: as of `kind_of`.

    Raises:
        RegistryError: what is missing, and the file where it belongs.
    """
    _check_listed(registry, {_name(spec): spec for spec in specs})
    packages = (modules,) if isinstance(modules, str) else modules
    imported = {package: _imported(_root(registry) / _file(package)) for package in packages}
    for spec in specs:
        name = _name(spec)
        if kind_of(spec, key) != name:
            line = f"{key}: Literal['{name}'] = '{name}'"
            raise RegistryError(f"{_file(registry, name)}: {spec.__name__} needs the name of its file: {line}")
        missing = sorted(variable for variable in spec.__class_vars__ if not hasattr(spec, variable))
        if missing:
            raise RegistryError(f"{_file(registry, name)}: {spec.__name__} lacks {', '.join(missing)}")
        for package in packages:
            if not (_root(registry) / _file(package, name)).is_file():
                place = f"add {_file(package, name)}, and its line in {_file(package)}"
                raise RegistryError(f"{_file(registry, name)}: the spec '{name}' has no module: {place}")
            if f"{package}.{name}" not in imported[package]:
                raise RegistryError(f"{_file(package, name)} is in no registry: add its line in {_file(package)}")
    for path in _files(registry):
        for found in vars(sys.modules[f"{registry}.{path.stem}"]).values():
            if _is_spec(found, path.stem, key) and found not in specs:
                raise RegistryError(f"{_file(registry)}: no line for '{path.stem}' of {_file(registry, path.stem)}")


def check_modules(registry: str, modules: Mapping[str, Module], specs: Sequence[type[Spec]], key: str = "kind") -> None:
    """Whether a registry of modules has a complete one for every spec and no other, and all that are there.

    Args:
        registry: the package that holds modules, a file each, and lists them.
        modules: those that it lists, by kind: a class each, or a function.
        specs: those of their specs' registry.
        key: as of `kind_of`.

    Raises:
        RegistryError: what is missing, and the file where it belongs.
    """
    _check_listed(registry, modules)
    check_lines(registry, modules, specs, key)
    described, kinds = _package(specs), [kind_of(spec, key) for spec in specs]
    for name in modules:
        if name not in kinds:
            place = f"add {_file(described, name)}, and its line in {_file(described)}"
            raise RegistryError(f"{_file(registry, name)}: the module '{name}' has no spec: {place}")


def check_lines(registry: str, listed: Collection[str], specs: Sequence[type[Spec]], key: str = "kind") -> None:
    """Whether a registry, which may hold other things too, has a line for every spec.

    Args:
        registry: the package that lists things.
        listed: their names.
        specs: those of their specs' registry.
        key: as of `kind_of`.

    Raises:
        RegistryError: what is missing, and the file where it belongs.
    """
    for kind in (kind_of(spec, key) for spec in specs):
        if kind not in listed:
            raise RegistryError(f"{_file(registry)}: no line for '{kind}' of {_file(_package(specs), kind)}")


def _check_listed(registry: str, modules: Mapping[str, Module]) -> None:
    """Whether each of them is complete and bears its file's name, and all files of the folder are in use.

    A file that nobody has imported when all that is listed has been is in no registry, and helps none that is.
    """
    for name, listed in modules.items():
        if _name(listed) != name:
            raise RegistryError(f"{_file(registry)}: '{name}' is in {_name(listed)}.py: it belongs into {name}.py")
        missing = sorted(getattr(listed, "__abstractmethods__", ()))
        if missing:
            raise RegistryError(f"{_file(registry, name)}: {listed.__name__} lacks {', '.join(missing)}")
    for path in _files(registry):
        if f"{registry}.{path.stem}" not in sys.modules:
            raise RegistryError(f"{_file(registry, path.stem)} is in no registry: add its line in {_file(registry)}")


def _imported(path: Path) -> set[str]:
    """All that a file imports, and the modules that it imports from."""
    found: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8") if path.is_file() else "")):
        if isinstance(node, ast.ImportFrom):
            found |= {str(node.module), *(f"{node.module}.{alias.name}" for alias in node.names)}
    return found


def _is_spec(found: object, name: str, key: str) -> bool:
    """Whether it is the spec that the file `name` is for."""
    return isinstance(found, type) and issubclass(found, Spec) and _name(found) == name == kind_of(found, key)


def _files(registry: str) -> list[Path]:
    """The files of a registry's folder, beside the registry itself."""
    found = sorted((_root(registry) / _file(registry)).parent.glob("*.py"))
    return [path for path in found if path.stem.isidentifier() and path.stem != "__init__"]


def _package(specs: Sequence[type[Spec]]) -> str:
    """The registry that specs are in."""
    return specs[0].__module__.rpartition(".")[0]


def _name(listed: Module) -> str:
    """The file's that it is in."""
    return listed.__module__.rpartition(".")[2]


def _file(package: str, name: str = "__init__") -> str:
    return f"{package.replace('.', '/')}/{name}.py"


def _root(package: str) -> Path:
    """The folder that the outermost package is in."""
    file = sys.modules[package].__file__
    assert file is not None
    return Path(file).resolve().parents[package.count(".") + 1]
