"""The strip shows the interval and the expected region on one scale."""

from __future__ import annotations

import re

import pytest

from ssm.claims.claim import Expected
from ssm.report.strip import MARGIN, WIDTH, strip


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
