"""Registries of plug-ins. A class registers itself when it is defined, and modules are found by listing a folder.

The package of the plug-ins calls `discover()` of its registry in `__init__.py`.
"""

from __future__ import annotations

import importlib
import pkgutil
import sys
from typing import Any, Literal, TypeVar

from ssm.base.errors import UserError

T = TypeVar("T")


class RegistryError(UserError):
    """A plug-in cannot be imported, is registered wrongly, or differs from its spec or interface."""


class Registry(dict[str, T]):
    """Name -> registered class or function. Each is defined in `package`, in the file with its name."""

    other_files = "; a file of helpers has HELPER = True"  # how a file says that it registers nothing

    def __init__(self, package: str):
        super().__init__()
        self.package = package

    def add(self, name: str, one: Any) -> None:
        """Register a class or function. Raises `RegistryError`: its file has another name, or the name is taken."""
        if one.__module__ != f"{self.package}.{name}":
            right = file_of(f"{self.package}.{name}")
            raise RegistryError(f"{file_of(one.__module__)}: {one.__name__} is '{name}', so its file must be {right}")
        before: Any = self.get(name, one)
        if before.__qualname__ != one.__qualname__:  # equal if the module was loaded again
            raise RegistryError(f"{file_of(one.__module__)}: {one.__name__} and another class have the name '{name}'")
        self[name] = one

    def put(self, name: str, one: T) -> None:
        """Register an object that is neither a class nor a function. Raises `RegistryError`: the name is taken."""
        if name in self:
            raise RegistryError(f"{self.package.replace('.', '/')}/: two plug-ins have the name '{name}'")
        self[name] = one

    def expects(self, module: str) -> bool:
        """Whether a module must register something. `base` and modules with `HELPER = True` need not."""
        return module != "base" and not getattr(sys.modules[f"{self.package}.{module}"], "HELPER", False)

    def add_spec(self, spec: Any, key: str) -> None:
        """Register a spec under the default of its field `key`. A spec without this default is a base class.

        Raises:
            RegistryError: as in `add`, or the field accepts anything else than this default.
        """
        field = spec.model_fields.get(key)
        if field is None or not isinstance(name := field.default, str):
            return
        if field.annotation != Literal[name]:
            right = f'{key}: Literal["{name}"] = "{name}"'
            raise RegistryError(f"{file_of(spec.__module__)}: {spec.__name__} must have the field {right}")
        self.add(name, spec)

    def discover(self) -> None:
        """Import all modules of the package, so that their classes and functions register themselves.

        Raises:
            RegistryError: a module cannot be read, imports a package that is missing, or registers nothing. Or a class
                lacks a method or a class variable.
        """
        for name in modules_of(self.package):
            try:
                importlib.import_module(f"{self.package}.{name}")
            except (SyntaxError, ModuleNotFoundError) as error:
                raise RegistryError(f"{file_of(f'{self.package}.{name}')}: {error}") from error
            if name not in self and self.expects(name):
                said = f"registers nothing with the name '{name}'{self.other_files}"
                raise RegistryError(f"{file_of(f'{self.package}.{name}')}: {said}")
        one: Any
        for name, one in self.items():
            variables = [variable for variable in getattr(one, "__class_vars__", ()) if not hasattr(one, variable)]
            missing = sorted([*getattr(one, "__abstractmethods__", ()), *variables])
            if missing:
                raise RegistryError(f"{file_of(f'{self.package}.{name}')}: {one.__name__} lacks {', '.join(missing)}")


def modules_of(package: str) -> list[str]:
    """Sorted names of all modules in the folder of an imported package."""
    return sorted(module.name for module in pkgutil.iter_modules(sys.modules[package].__path__))


def file_of(module: str) -> str:
    """File of a module, relative to the root of the repository."""
    return f"{module.replace('.', '/')}.py"
