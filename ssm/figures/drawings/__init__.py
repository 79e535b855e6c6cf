"""What a figure's picture is stacked from, one file each, which is called like its kind."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Union

from pydantic import Field

from ssm.base.discovery import discover
from ssm.figures.drawing import DRAWINGS, Drawing

discover(__name__, DRAWINGS)

if TYPE_CHECKING:
    DrawingSpec = Drawing
else:
    DrawingSpec = Annotated[Union[tuple(DRAWINGS.values())], Field(discriminator="kind")]  # noqa: UP007
