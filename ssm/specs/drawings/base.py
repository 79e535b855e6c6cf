"""What the specs of all drawings share."""

from __future__ import annotations

from ssm.specs.reader import Reader, SeriesReader


class Drawing(Reader):
    """A part of a figure's picture: one row of panels, or several."""


class SeriesDrawing(SeriesReader, Drawing):
    """Draws measurements of the figure's series."""
