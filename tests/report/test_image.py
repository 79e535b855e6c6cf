"""SVG images: size, colors in dark mode, and refused files."""

from __future__ import annotations

import base64
import re
from xml.etree import ElementTree

import pytest
from report.folder import SVG

from ssm.base.errors import TableError
from ssm.figures.colors import GRID, INK
from ssm.report.build import style
from ssm.report.image import DARK, svg_image


def test_an_svg_becomes_an_image_that_follows_dark_mode() -> None:
    image = svg_image(SVG.encode(), "x.svg")
    assert (image.width, image.height) == (756, 216), "1.5 CSS pixels for each point"
    head, _, content = image.source.partition(",")
    assert head == "data:image/svg+xml;base64"
    root = ElementTree.fromstring(base64.b64decode(content))
    assert root[0].text == re.sub("</?style>", "", DARK)
    text = ElementTree.tostring(root, encoding="unicode")
    assert f"stroke: var(--ink, {INK})" in text
    assert f'stroke="var(--grid, {GRID})"' in text
    assert text.count("#1f2328") == text.count("#d0d7de") == 1, "only the fallbacks"


def test_dark_colors_are_those_of_the_page() -> None:
    light, _, dark = style().partition("@media (prefers-color-scheme: dark)")
    for name, color in (("ink", INK), ("grid", GRID)):
        assert f"--{name}: {color};" in light
        (night,) = re.findall(rf"--{name}: (#\w+)", DARK)
        assert f"--{name}: {night};" in dark


@pytest.mark.parametrize(
    "svg",
    [
        b"",
        b"not a picture",
        b"\xff\xfe",
        b"<html/>",
        b"<svg xmlns='http://www.w3.org/2000/svg'/>",
        b'<svg viewBox="0 0 9e9 9">',
        b'<svg viewBox="0 0 NaN 9">',
        b'<svg viewBox="0 0 9999999 9">',
    ],
)
def test_other_files_are_refused(svg: bytes) -> None:
    with pytest.raises(TableError, match=r"^x\.svg: not an SVG image with a viewBox$"):
        svg_image(svg, "x.svg")
