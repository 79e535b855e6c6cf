"""The plots that a figure is stacked from, one file each, which is called like its kind."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Union

from pydantic import Field

from ssm.figures.plot import PLOTS, Plot

PLOTS.discover()

if TYPE_CHECKING:
    PlotSpec = Plot
else:
    PlotSpec = Annotated[Union[tuple(PLOTS.values())], Field(discriminator="kind")]  # noqa: UP007
