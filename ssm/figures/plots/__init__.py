"""The plots that a figure is stacked from, one file each, which is called like its kind."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ssm.figures.plot import PLOTS, Plot
from ssm.specs.base import plugin_union

if TYPE_CHECKING:
    PlotSpec = Plot
else:
    PlotSpec = plugin_union(PLOTS)
