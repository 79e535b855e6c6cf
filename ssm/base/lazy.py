"""Slow packages, which are imported at their first use.

A quantity or a plot is one file, with its spec and its computation. The plan reads the spec and must stay fast. So
modules that the plan imports take these packages from here.
"""

from __future__ import annotations

import importlib
from types import ModuleType
from typing import TYPE_CHECKING, Any


class _Lazy(ModuleType):
    """Placeholder for the module with its name."""

    def __getattr__(self, name: str) -> Any:
        return getattr(importlib.import_module(self.__name__), name)


if TYPE_CHECKING:
    import matplotlib
    import polars
    import pyarrow
    from latex2mathml import converter, symbols_parser
    from matplotlib import colors, patches, textpath, ticker, transforms
    from pyarrow import parquet
    from scipy import optimize, special, stats
else:
    matplotlib, polars, pyarrow = map(_Lazy, ("matplotlib", "polars", "pyarrow"))
    parquet = _Lazy("pyarrow.parquet")
    optimize, special, stats = (_Lazy(f"scipy.{name}") for name in ("optimize", "special", "stats"))
    converter, symbols_parser = _Lazy("latex2mathml.converter"), _Lazy("latex2mathml.symbols_parser")
    plotting = ("colors", "patches", "textpath", "ticker", "transforms")
    colors, patches, textpath, ticker, transforms = (_Lazy(f"matplotlib.{name}") for name in plotting)

__all__ = [
    "colors",
    "converter",
    "matplotlib",
    "optimize",
    "parquet",
    "patches",
    "polars",
    "pyarrow",
    "special",
    "stats",
    "symbols_parser",
    "textpath",
    "ticker",
    "transforms",
]
