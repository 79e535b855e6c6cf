"""The registry of measurement functions."""

from __future__ import annotations

from collections.abc import Callable

import polars as pl

from ssm.base.plugin_modules import Modules
from ssm.specs.measurements import SPECS

MEASURES: Modules[Callable[..., pl.DataFrame]] = Modules("ssm.evaluation", SPECS)
