"""The look of figures: colors for color-blind readers, and the same style for an arm in every figure."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ssm.base.lazy import colors, matplotlib, ticker
from ssm.figures.colors import GRID, INK

WIDTH = 7.0  # inches: the text width of a paper, and 380 pixels on a phone

# Okabe & Ito (2008), "Color Universal Design". INK replaces black; yellow is left out because it is invisible on white.
ORANGE, SKY, GREEN = "#e69f00", "#56b4e9", "#009e73"
BLUE, VERMILION, PURPLE = "#0072b2", "#d55e00", "#cc79a7"
BROWN = "#7a3300"  # an eighth color, equally distinct for color-blind readers
GREY = "#858c94"  # neutral

SMALL, NORMAL, LARGE = 10.0, 11.0, 12.0  # points
TITLE = 0.112  # inches: width of a letter of a panel's title

RC: Any = {  # matplotlib's type of its settings differs between versions
    "font.family": "sans-serif",
    "font.sans-serif": ["DejaVu Sans"],
    "font.size": NORMAL,
    "axes.titlesize": LARGE,
    "axes.titlelocation": "left",
    "axes.titleweight": "bold",
    "axes.labelsize": NORMAL,
    "xtick.labelsize": NORMAL,
    "ytick.labelsize": NORMAL,
    "legend.fontsize": NORMAL,
    "legend.frameon": False,
    "legend.handlelength": 2.6,
    "legend.columnspacing": 1.2,
    "text.color": INK,
    "axes.labelcolor": INK,
    "axes.edgecolor": INK,
    "axes.titlecolor": INK,
    "xtick.color": INK,
    "ytick.color": INK,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "axes.axisbelow": True,
    "grid.color": GRID,
    "grid.linewidth": 0.7,
    "lines.linewidth": 1.7,
    "lines.markersize": 4.5,
    "axes.unicode_minus": True,
    "svg.fonttype": "none",  # keep text as text: small files, and a page can change its color
    "pdf.fonttype": 42,
    "figure.dpi": 200,
}


@dataclass(frozen=True)
class ArmStyle:
    """Color, line and marker of one arm."""

    color: str
    line: str | tuple[float, tuple[float, ...]] = "-"
    marker: str = "o"
    hollow: bool = False

    def keywords(self) -> dict[str, Any]:
        """Arguments for `Axes.plot`."""
        face = "none" if self.hollow else self.color
        return {"color": self.color, "linestyle": self.line, "marker": self.marker, "markerfacecolor": face}


DOTS = (0.0, (1.0, 1.2))
ARMS = {
    "base": ArmStyle(INK, "-", "o"),
    "control": ArmStyle(SKY, (0.0, (5.0, 1.5)), "s"),
    "control_stream": ArmStyle(BROWN, DOTS, "h", hollow=True),
    "random_noise": ArmStyle(VERMILION, (0.0, (3.5, 1.2)), "^"),
    "fitted_noise": ArmStyle(ORANGE, (0.0, (6.0, 1.2, 1.2, 1.2)), "D"),
    "state_passing": ArmStyle(BLUE, "-", "v"),
    "tbtt": ArmStyle(PURPLE, (0.0, (2.2, 1.0)), "P"),
    "standard": ArmStyle(GREEN, "-", "X"),
}
CLASSES = {
    "strong": ArmStyle(BLUE, "-", "o"),
    "weak": ArmStyle(ORANGE, "-", "s"),
    "none": ArmStyle(VERMILION, "-", "X"),
    "not decided": ArmStyle(GREY, "-", "D", hollow=True),
}
CLASS_NAMES = {
    "strong": "strong extension",
    "weak": "weak extension",
    "none": "no extension",
    "not decided": "not decided",
}
RAMP_LINES = ("-", (0.0, (5.0, 1.5)), (0.0, (6.0, 1.2, 1.2, 1.2)), (0.0, (2.2, 1.0)))
RAMP_MARKERS = "os^Dv<>*"


HUES = (BLUE, VERMILION, GREEN, PURPLE, ORANGE, SKY, BROWN)  # of what has no order and is no known intervention
LEAST_HUES = 3  # that make many things distinct
STEPS = 5  # of the ramp, so many can be told apart
TINTS = (-0.4, 0.25)  # black in the darkest and white in the lightest: both are visible on dark and on light pages


def arm_styles(
    arms: Sequence[str],
    places: Mapping[str, tuple[str, Mapping[str, Any]]] | None = None,
    ordered: bool = True,
    named: Collection[str] = (),
) -> dict[str, ArmStyle]:
    """The style of every arm, given the arms of the figure in order.

    A known intervention looks the same in every figure. `standard_<intervention>` has the same color, dotted lines and
    hollow markers. Other arms (contexts, budgets, noise levels) share a sequential color ramp, in their order. If there
    are more than `STEPS`, neighbors on the ramp would look alike, and the arms have hues instead. So they have if the
    ramp would look like a hue of the figure and enough hues are left. The members of a family are ordered along its
    longest numeric axis, or along its longest axis if none is numeric. With one family they share the ramp; with
    several, each family has tints of its own hue. Lines and markers show the other axes.

    Args:
        places: arm -> (family, axis -> value), for arms that a grid made.
        ordered: false: the other arms have no order, and have hues.
        named: arms without a line in the legend, because their names are beside their bars. They have no hue of a line:
            if there is no other, they are grey.
    """
    places = places or {}
    styles, others = {}, []
    families: dict[str, list[str]] = {}
    for arm in arms:
        plain = ARMS.get(arm.removeprefix("standard_"))
        if arm in places:
            families.setdefault(places[arm][0], []).append(arm)
        elif arm in ARMS:
            styles[arm] = ARMS[arm]
        elif plain is not None:
            styles[arm] = ArmStyle(plain.color, DOTS, plain.marker, hollow=True)
        else:
            others.append(arm)
    hues, taken = iter(HUES * len(families)), set()
    for number, (family, members) in enumerate(families.items()):
        known = ARMS[family].color if family in ARMS else next(hues)
        taken.add(known)
        hue = None if len(families) == 1 else GREY if known == INK else known
        styles |= _members(members, [places[member][1] for member in members], hue, number)
    taken |= {style.color for style in styles.values()}
    free = [hue for hue in HUES if hue not in taken]
    lines = [arm for arm in others if arm not in named]
    # The ramp has no color like those of the base (INK) and the control (SKY).
    if ordered and len(others) <= STEPS and (taken <= {INK, SKY} or len(lines) > len(free)):
        return styles | dict(zip(others, ramp(len(others)), strict=True))
    styles |= unordered(lines, free if len(free) >= min(LEAST_HUES, len(lines)) else HUES)
    left = [hue for hue in free if hue not in {styles[arm].color for arm in lines}]
    return styles | unordered([arm for arm in others if arm in named], left or [GREY])


def _members(
    members: Sequence[str], axes: Sequence[Mapping[str, Any]], hue: str | None, number: int
) -> dict[str, ArmStyle]:
    """The styles of the members of a family. Without a hue they are on the ramp; many without an order have hues.

    A single member has the line and marker of the `number` of its family.
    """
    values = {axis: list(dict.fromkeys(own[axis] for own in axes)) for axis in axes[0]}
    numbers = {axis: found for axis, found in values.items() if all(type(value) in (int, float) for value in found)}
    leading = max(numbers or values, key=lambda axis: len(values[axis]))
    order = sorted(values[leading]) if leading in numbers else values[leading]
    many = leading not in numbers and len(order) > STEPS
    scale = HUES * len(order) if many else [style.color for style in ramp(len(order))]
    colors = scale if hue is None else tints(hue, len(order))
    rest = [tuple(value for axis, value in own.items() if axis != leading) for own in axes]
    kinds = list(dict.fromkeys(rest))
    styles = {}
    for member, own, kind in zip(members, axes, rest, strict=True):
        place = number if len(axes) == 1 else kinds.index(kind) if len(kinds) > 1 else order.index(own[leading])
        marker, hollow = RAMP_MARKERS[place % 8], place % 16 >= 8
        styles[member] = ArmStyle(colors[order.index(own[leading])], RAMP_LINES[place % 4], marker, hollow)
    return styles


def tints(color: str, n: int) -> list[str]:
    """`n` colors of one hue, from dark to light; a single one is the color itself."""
    if n == 1:
        return [color]
    own = np.array(colors.to_rgb(color))
    return [colors.to_hex(own * (1 - abs(share)) + max(share, 0.0)) for share in np.linspace(*TINTS, n)]


def unordered(names: Sequence[str], hues: Sequence[str] = HUES) -> dict[str, ArmStyle]:
    """A style for each of up to 32 things without an order: no two have the same line and marker."""
    return {
        name: ArmStyle(hues[i % len(hues)], RAMP_LINES[(i + i // 8) % 4], RAMP_MARKERS[i % 8])
        for i, name in enumerate(names)
    }


def ramp(n: int) -> list[ArmStyle]:
    """`n` styles from dark to light: viridis without its ends, which are invisible on dark or light pages."""
    places = np.linspace(0.12, 0.79, n) if n != 1 else [0.45]
    return [
        ArmStyle(colors.to_hex(matplotlib.colormaps["viridis"](place)), RAMP_LINES[i % 4], RAMP_MARKERS[i % 8])
        for i, place in enumerate(places)
    ]


def tokens(count: float) -> str:
    """A number of tokens as text, in units of 1024 if it is a multiple of a half unit.

    >>> [tokens(n) for n in (32, 1000, 1536, 2048, 131072, 1048576)]
    ['32', '1000', '1.5k', '2k', '128k', '1M']
    """
    for unit, letter in ((2**20, "M"), (2**10, "k")):
        if count >= unit and (count * 2) % unit == 0:
            return f"{count / unit:g}{letter}"
    return f"{count:g}"


def token_ticks(low: float, high: float, through: int, most: int) -> list[float]:
    """Ticks of a log2 axis: at most `most` numbers of the form `through` times a power of two inside [low, high]."""
    first, last = math.ceil(math.log2(low / through) - 1e-9), math.floor(math.log2(high / through) + 1e-9)
    for step in range(1, 64):
        powers = [p for p in range(first, last + 1) if p % step == 0]
        if len(powers) <= most:
            break
    return [through * 2.0**p for p in powers]


def log_ticks(low: float, high: float, most: int = 6) -> list[float]:
    """Round numbers on a log axis from `low` to `high`: as many as possible, at most `most`."""
    decades = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
    for mantissas in ((1, 1.5, 2, 3, 4, 5, 7), (1, 2, 3, 5), (1, 2, 5), (1, 3), (1,)):
        ticks = [m * 10.0**d for d in decades for m in mantissas if low <= m * 10.0**d <= high]
        if len(ticks) <= most:
            break
    if len(ticks) >= 3:
        return ticks[:: math.ceil(len(ticks) / most)]
    places = ticker.MaxNLocator(nbins=most - 1, steps=[1, 2, 5, 10])
    return [tick for tick in places.tick_values(low, high) if low <= tick <= high]
