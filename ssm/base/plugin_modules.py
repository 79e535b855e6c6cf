"""Plug-ins in two files: a spec, which never needs torch, and its module in another package.

Both files have the name of the plug-in. A module registers its class with `kind="NAME"` in the class statement, or its
function with the decorator `Modules.function`.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

from ssm.base.discovery import Registry, RegistryError, file_of

T = TypeVar("T")
F = TypeVar("F", bound=Callable[..., Any])


class Modules(Registry[T]):
    """Name -> class or function that a module of `package` registered. Every name is also in `specs`."""

    other_files = ""  # a spec has this name, so that HELPER changes nothing

    def __init__(self, package: str, specs: Registry[Any]):
        super().__init__(package)
        self.specs = specs

    def add(self, name: str, one: Any) -> None:
        """Register as `Registry.add` does. Also raises `RegistryError` if there is no spec with this name."""
        super().add(name, one)
        if name not in self.specs:
            place = file_of(f"{self.specs.package}.{name}")
            raise RegistryError(f"{file_of(one.__module__)}: '{name}' has no spec: add {place}")

    def function(self, one: F) -> F:
        """Register a function under its name. This must be the topmost decorator."""
        self.add(one.__name__, one)
        return one

    def expects(self, module: str) -> bool:
        """Whether a spec has the name of this module."""
        return module in self.specs

    def discover(self) -> None:
        """Import all modules of the package.

        Raises:
            RegistryError: as in `Registry.discover`, or another decorator hides the registered function.
        """
        super().discover()
        one: Any
        for name, one in self.items():
            if getattr(sys.modules[one.__module__], one.__name__, None) is not one:
                place = file_of(one.__module__)
                raise RegistryError(f"{place}: '{name}' has a decorator above the one that registers it")


def check_files(specs: Registry[Any], package: str) -> None:
    """Check that every spec has a module. The folder is listed, because importing modules could import torch.

    Raises:
        RegistryError: a module is missing.
    """
    source = sys.modules[specs.package].__file__
    assert source is not None
    root = Path(source).parents[specs.package.count(".") + 1]
    there = {path.stem for path in root.joinpath(*package.split(".")).glob("*.py")}
    for name in specs:
        if name not in there:
            place = file_of(f"{package}.{name}")
            raise RegistryError(f"{file_of(f'{specs.package}.{name}')}: '{name}' has no module: add {place}")
