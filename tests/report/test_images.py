"""SVG images of figures, and the strips that show an interval and the expected region on one scale."""

from __future__ import annotations

import base64
import re
from xml.etree import ElementTree

import pytest
from report.folder import SVG

from ssm.base.errors import TableError
from ssm.claims.claim import Expected
from ssm.figures.colors import GRID, INK
from ssm.report.build import style
from ssm.report.image import DARK, svg_image
from ssm.report.strip import MARGIN, WIDTH, strip


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


def places(low: float, high: float, **expected: float) -> tuple[float, ...]:
    """The ends of the region, the ends of the bar, and the dot, in pixels."""
    svg = strip({"estimate": (low + high) / 2, "low": low, "high": high}, Expected(**expected))
    region = re.search(r'x="([\d.]+)" width="([\d.]+)"', svg)
    bar = re.search(r'class="bar" d="M([\d.]+) [\d.]+H([\d.]+)"', svg)
    dot = re.search(r'cx="([\d.]+)"', svg)
    assert region
    assert bar
    assert dot
    left, width = map(float, region.groups())
    return left, left + width, *map(float, bar.groups()), float(dot[1])


@pytest.mark.parametrize(("low", "high"), [(1.0, 2.0), (1.0, 100.0), (-2.0, 5.0)])
def test_bar_and_region_share_one_scale(low: float, high: float) -> None:
    left, right, start, end, dot = places(low, high, above=low, below=high)
    assert (left, right, start, end) == pytest.approx((MARGIN, WIDTH - MARGIN) * 2)
    assert start <= dot <= end


def test_an_open_region_reaches_the_edge() -> None:
    left, right, start, end, _ = places(2.0, 3.0, above=1.0)
    assert left == MARGIN < start < end < right == WIDTH
    left, right, start, end, _ = places(2.0, 3.0, below=1.0)
    assert left == 0 < right == MARGIN < start < end


def test_a_single_point_and_a_missing_number() -> None:
    assert places(1.0, 1.0, above=1.0)[2:] == (MARGIN, MARGIN, MARGIN)
    assert strip({"estimate": None}, Expected(above=1.0)) == ""
