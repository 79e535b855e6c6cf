"""Figures as `data:` URIs, so that a page needs no other file."""

from __future__ import annotations

import base64
import re
from dataclasses import dataclass

from ssm.base.errors import TableError
from ssm.figures.colors import GRID, INK

SCALE = 1.5  # CSS pixels for each point of an SVG
# The colors of style.css in dark mode.
DARK = "<style>@media (prefers-color-scheme: dark) {svg {--ink: #e6edf3; --grid: #363d46}}</style>"
_ROOT = re.compile(r'<svg\b[^>]*\sviewBox="0 0 (\d{1,6}(?:\.\d*)?) (\d{1,6}(?:\.\d*)?)"[^>]*>')


@dataclass(frozen=True)
class Image:
    """The attributes of an `<img>` element: a `data:` URI, and its size in CSS pixels."""

    source: str
    width: int
    height: int


def png_image(png: bytes, size: tuple[int, int]) -> Image:
    """A PNG file's content as an image; `size` is width and height in pixels."""
    return Image(_data_uri("png", png), *size)


def svg_image(svg: bytes, source: str) -> Image:
    """An SVG file's content as an image. In dark mode its text, axes and grid are light.

    In an `<img>` element, an SVG cannot run scripts or load other files.

    Args:
        source: the file, for errors.

    Raises:
        TableError: it is not an SVG image with a viewBox.
    """
    text = svg.decode("utf-8", errors="replace")
    root = _ROOT.search(text)
    if root is None:
        raise TableError(f"{source}: not an SVG image with a viewBox")
    text = text[: root.end()] + DARK + text[root.end() :]
    for name, color in (("ink", INK), ("grid", GRID)):
        text = text.replace(color, f"var(--{name}, {color})")
    width, height = (round(SCALE * float(points)) for points in root.groups())
    return Image(_data_uri("svg+xml", text.encode()), width, height)


def _data_uri(kind: str, content: bytes) -> str:
    return f"data:image/{kind};base64,{base64.b64encode(content).decode()}"
