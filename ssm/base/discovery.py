"""Plug-ins: a class registers itself when it is defined. The modules of a package are found by listing its folder.

The package of the plug-ins calls the registry's `discover()` in its `__init__.py`.
"""

from __future__ import annotations

import importlib
import pkgutil
import sys
from typing import Any, TypeVar

from ssm.base.errors import UserError

T = TypeVar("T")


class RegistryError(UserError):
    """A plug-in has a wrong name, the name of another one, or lacks something."""


class Registry(dict[str, T]):
    """Name -> the class or function that registered itself; each is defined in `package`, in the file of its name."""

    def __init__(self, package: str):
        super().__init__()
        self.package = package

    def add(self, name: str, one: Any) -> None:
        """Register a class or function. Raises `RegistryError`: its file or its name is not its own."""
        if one.__module__ != f"{self.package}.{name}":
            right = file_of(f"{self.package}.{name}")
            raise RegistryError(f"{file_of(one.__module__)}: {one.__name__} is called '{name}'; its file is {right}")
        before: Any = self.get(name, one)
        if before.__qualname__ != one.__qualname__:  # equal: the module was loaded again
            raise RegistryError(f"{file_of(one.__module__)}: {one.__name__} and another class are called '{name}'")
        self[name] = one

    def put(self, name: str, one: T) -> None:
        """Register what is neither a class nor a function. Raises `RegistryError`: its name is another one's."""
        if name in self:
            raise RegistryError(f"{self.package.replace('.', '/')}/: two are called '{name}'")
        self[name] = one

    def expects(self, module: str) -> bool:
        """Whether the module of this name has to register something. `base` and modules with `HELPER = True` do not."""
        return module != "base" and not getattr(sys.modules[f"{self.package}.{module}"], "HELPER", False)

    def add_spec(self, spec: Any, key: str = "kind") -> None:
        """Register a spec under the default of its field `key`; without a default, it is a base class of others."""
        if key in spec.model_fields and isinstance(name := spec.model_fields[key].default, str):
            self.add(name, spec)

    def discover(self) -> None:
        """Import all modules of the package, so that what they define registers itself.

        Raises:
            RegistryError: a module registers nothing, or something that lacks a method or a class variable.
        """
        for name in modules_of(self.package):
            importlib.import_module(f"{self.package}.{name}")
            if name not in self and self.expects(name):
                raise RegistryError(f"{file_of(f'{self.package}.{name}')}: registers nothing called '{name}'")
        one: Any
        for name, one in self.items():
            variables = [variable for variable in getattr(one, "__class_vars__", ()) if not hasattr(one, variable)]
            missing = sorted([*getattr(one, "__abstractmethods__", ()), *variables])
            if missing:
                raise RegistryError(f"{file_of(f'{self.package}.{name}')}: {one.__name__} lacks {', '.join(missing)}")


def modules_of(package: str) -> list[str]:
    """The names of all modules in the folder of an imported package, sorted."""
    return sorted(module.name for module in pkgutil.iter_modules(sys.modules[package].__path__))


def file_of(module: str) -> str:
    """The file of a module, from the root of the repository."""
    return f"{module.replace('.', '/')}.py"
