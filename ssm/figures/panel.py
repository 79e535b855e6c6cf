"""Panels of curves. A plot describes its panels as data; this file decides how they look."""

from __future__ import annotations

import math
import re
from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from ssm.base.counting import short
from ssm.base.lazy import ticker, transforms
from ssm.figures.colors import INK
from ssm.figures.data import OUTER_SEEDS, Curve
from ssm.figures.rows import UNBROKEN, Row, columns_for, in_rows
from ssm.figures.style import SMALL, ArmStyle, log_ticks, token_ticks, tokens

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.axis import Axis

LARGEST_SPAN = 300.0  # a log axis ends at this factor above the lowest curve, so diverged curves leave the panel
LEAST = 1.4  # inches: the lowest legible row of curves
FEW = 6  # panels of a plot; more are small
MOST_SMALL = 4  # small panels per row
NARROW = 0.8  # height of a panel in a row of several plots, relative to its height in its own row
LEVEL: dict[str, Any] = {"color": INK, "linewidth": 0.9, "linestyle": (0.0, (4.0, 2.0))}  # a reference line
BAND = 0.16  # opacity of the bands
# The end of the label of a curve without a finite value: why, and the title of its panel if there are several.
ABSENT = re.compile(r" \((diverged|no number): (.*)\)$")
EDGE = {True: 0.1, False: 0.015}  # space left and right of the curves with and without dots, a fraction of the axis
BESIDE = 2.6  # points between the dots of two curves at the same x


@dataclass(frozen=True)
class Mark:
    """A labeled vertical line, such as the end of the training context."""

    x: float
    text: str
    color: str = INK


@dataclass(frozen=True)
class CurvePanel:
    """Curves over tokens or over another number. Calling the panel draws it."""

    curves: Sequence[Curve]
    styles: dict[str, ArmStyle]
    title: str
    x_label: str
    y_label: str
    x_limits: tuple[float, float]
    ticks: tuple[float, ...] = ()  # of the x axis; empty: automatic
    through: int = 1  # a number of tokens that gets a tick
    tokens: bool = True  # x counts tokens: a logarithmic axis has ticks at `through` times powers of two
    log_x: bool = True
    log_y: bool = False
    y_limits: tuple[float, float] | None = None  # None: automatic
    y_shared: bool = False  # the first panel of the row has the tick labels
    level: float | None = None  # a horizontal reference line
    marks: Sequence[Mark] = ()
    seeds: Literal["band", "dots", "lines"] = "band"  # a band of their range, a dot each, or a line each and no mean

    def __call__(self, axes: Axes, columns: int) -> None:
        """Draw on `axes`, in a row with `columns` columns."""
        for place, curve in enumerate(self.curves):
            self._draw(axes, curve, columns, BESIDE * (place - (len(self.curves) - 1) / 2))
        if self.level is not None:
            axes.axhline(self.level, **LEVEL, zorder=1.5)
        axes.set_title(self.title)
        self._x_axis(axes, columns)
        self._y_axis(axes)
        for mark in self.marks:
            self._mark(axes, mark, columns)

    def columns(self, panels: Sequence[CurvePanel]) -> int:
        """As `columns_for`."""
        return columns_for(len(panels))

    def share_row(
        self, panels: Sequence[CurvePanel], height: float, columns: int
    ) -> tuple[float, Sequence[CurvePanel]]:
        """Lower panels. Panels with the same label on the y axis share this axis."""
        height = NARROW * height
        if len({(panel.y_label, panel.log_y) for panel in panels}) > 1:
            return height, panels
        return height, _beside(panels, columns, same_y=True)

    def fit(self) -> tuple[float, float] | None:
        """Limits of the y axis that contain all visible values; None if there are none."""
        values = [np.array([self.level])] if self.level is not None else []
        for curve in self.curves:
            drawn = [(curve.x, np.where(curve.finite(), y, np.nan)) for y in (curve.y, curve.low, curve.high)]
            for x, y in drawn if self.seeds == "band" else [*drawn, *curve.of_seeds]:
                values.append(y[np.isfinite(y) & (x >= self.x_limits[0]) & (x <= self.x_limits[1])])
        all_values = np.concatenate(values) if values else np.array([])
        if self.log_y:
            all_values = all_values[all_values > 0]
        if not all_values.size:
            return None
        low, high = float(all_values.min()), float(all_values.max())
        if self.log_y:
            high = max(min(high, low * LARGEST_SPAN), low * 1.2)
            room = (high / low) ** 0.06
            return low / room, high * room * (high / low) ** 0.08
        room = 0.06 * ((high - low) or abs(high) or 1.0)
        return low - room, high + 2.2 * room

    def _draw(self, axes: Axes, curve: Curve, columns: int, beside: float) -> None:
        """Draw a curve. `beside`: points by which its dots are moved to the right, so that they do not cover others."""
        style, finite = self.styles[curve.arm], curve.finite()
        label = curve.label
        if not finite.any():
            why = "no number" if self.seeds == "dots" else "diverged"  # a quantity may have no number for other reasons
            label += f" ({why})" if columns == 1 else f" ({why}: {self.title})"
        y = np.where(finite, curve.y, np.nan)
        if self.seeds == "lines":
            for number, (x, values) in enumerate(curve.of_seeds):
                look: Any = {"color": style.color, "linewidth": 0.9, "alpha": 0.8}
                axes.plot(x, np.where(np.isfinite(values), values, np.nan), label="_" if number else label, **look)
            return
        shown = int(np.sum((curve.x >= self.x_limits[0]) & (curve.x <= self.x_limits[1])))
        axes.plot(curve.x, y, label=label, markevery=max(1, shown // 10), zorder=3, **style.keywords())
        if self.seeds == "dots":
            moved = axes.transData + transforms.ScaledTranslation(beside / 72, 0.0, axes.figure.dpi_scale_trans)
            dots: Any = {"color": style.color, "markersize": 2.4, "markeredgecolor": INK, "markeredgewidth": 0.2}
            for x, values in curve.of_seeds:
                axes.plot(x, values, linestyle="none", marker="o", alpha=0.7, zorder=2.5, transform=moved, **dots)
            return
        banded = finite & np.isfinite(curve.low) & np.isfinite(curve.high)
        axes.fill_between(
            curve.x, curve.low, curve.high, where=banded.tolist(), color=style.color, alpha=BAND, linewidth=0
        )
        if curve.breaks_off():
            last = int(np.flatnonzero(finite)[-1])
            axes.plot(curve.x[last], y[last], marker="x", markersize=9, markeredgewidth=2, color=style.color)

    def _x_axis(self, axes: Axes, columns: int) -> None:
        low, high = self.x_limits
        most = {1: 10, 2: 6}.get(columns, 4)
        if self.log_x:
            axes.set_xscale("log", base=2 if self.tokens else 10)
            ticks = token_ticks(low, high, self.through, most) if self.tokens else log_ticks(low, high, most)
        elif self.tokens:
            ticks = [low + (high - low) * i / 4 for i in range(5)]
        else:
            places = ticker.MaxNLocator(nbins=min(most, 6), steps=[1, 2, 2.5, 5, 10]).tick_values(low, high)
            ticks = [tick for tick in places if low - 1e-9 * abs(low) <= tick <= high + 1e-9 * abs(high)]
        if self.ticks:
            ticks = list(self.ticks[:: math.ceil(len(self.ticks) / most)])
        room = EDGE[self.seeds == "dots"] * (np.log(high / low) if self.log_x else high - low)  # no marker is cut
        axes.set_xlim(*((low / np.exp(room), high * np.exp(room)) if self.log_x else (low - room, high + room)))
        axes.xaxis.set_major_locator(ticker.FixedLocator(ticks))
        powers = all(math.log2(tick).is_integer() for tick in ticks if tick >= 1000)
        counts = self.tokens or bool(self.ticks and powers)
        axes.xaxis.set_major_formatter(ticker.FixedFormatter([(tokens if counts else short)(tick) for tick in ticks]))
        axes.xaxis.set_minor_locator(ticker.NullLocator())
        axes.set_xlabel(self.x_label)

    def _y_axis(self, axes: Axes) -> None:
        limits = self.y_limits or self.fit()
        if limits is None:
            axes.text(0.5, 0.5, "no finite value", transform=axes.transAxes, ha="center", va="center")
            limits = (0.1, 1.0)
        if self.log_y:
            axes.set_yscale("log")
            log_axis(axes.yaxis, *limits)
        else:
            axes.yaxis.set_major_locator(ticker.MaxNLocator(nbins=5, steps=[1, 2, 2.5, 5, 10]))
        axes.set_ylim(*limits)
        axes.set_ylabel(self.y_label)
        if self.y_shared:
            axes.tick_params(labelleft=False)

    def _mark(self, axes: Axes, mark: Mark, columns: int) -> None:
        low, high = self.x_limits
        if not low <= mark.x <= high:
            return
        axes.axvline(mark.x, color=mark.color, linewidth=1.2, linestyle=(0.0, (1.5, 1.5)), zorder=2)
        place = np.log(mark.x / low) / np.log(high / low) if self.log_x else (mark.x - low) / (high - low)
        left = place > (0.6 if columns < 3 else 0.45)  # put the text on the side that has space
        axes.annotate(
            mark.text,
            (mark.x, 1.0),
            xycoords=("data", "axes fraction"),
            xytext=(-4 if left else 4, -2),
            textcoords="offset points",
            ha="right" if left else "left",
            va="top",
            fontsize=SMALL,
            zorder=5,
        )


@dataclass(frozen=True)
class SmallPanel:
    """A panel with small letters, and without dots and texts of marks."""

    panel: CurvePanel

    def __call__(self, axes: Axes, columns: int) -> None:
        """Draw on `axes`, in a row with `columns` columns."""
        marks = [replace(mark, text="") for mark in self.panel.marks]
        replace(self.panel, title=self.panel.title.replace("\n", ", "), marks=marks)(axes, columns)
        for line in axes.lines:
            if line.get_marker() != "x":  # which marks the end of a curve that diverges
                line.set_markersize(0.0)
        # The title is not part of the layout, because it may be wider than the panel. Two empty lines leave room for it
        # (Matplotlib ignores a single one). Rows without labels of the x axis need none.
        axes.set_title(f"{UNBROKEN}\n{UNBROKEN}" if self.panel.x_label else "")
        above: Any = {"xy": (0.0, 1.06), "xycoords": "axes fraction", "fontsize": SMALL - 3, "fontweight": "bold"}
        axes.annotate(self.panel.title, **above).set_in_layout(False)
        axes.yaxis.label.set_fontsize(SMALL - 3)  # the labels of two rows would otherwise overlap
        if self.panel.x_label:
            axes.xaxis.label.set_fontsize(SMALL - 3)
            axes.tick_params(labelsize=SMALL - 3)
        elif self.panel.log_y:  # the panel is low
            log_axis(axes.yaxis, *axes.get_ylim(), most=3)


def log_axis(axis: Axis, low: float, high: float, most: int = 6) -> None:
    """Label an axis with a log scale at round numbers from `low` to `high`, at most `most`."""
    ticks = log_ticks(low, high, most)
    axis.set_major_locator(ticker.FixedLocator(ticks))
    axis.set_major_formatter(ticker.FixedFormatter([short(tick) for tick in ticks]))
    axis.set_minor_locator(ticker.NullLocator())
    axis.set_minor_formatter(ticker.NullFormatter())


def context_marks(curves: Sequence[Curve], styles: dict[str, ArmStyle]) -> list[Mark]:
    """Marks of the training context T: one line if the arms share it, otherwise one line per arm in its color."""
    contexts = sorted({curve.context for curve in curves})
    if len(contexts) == 1:
        return [Mark(contexts[0], f"T = {tokens(contexts[0])}")]
    return [Mark(curve.context, "", styles[curve.arm].color) for curve in curves]


def token_panel(
    curves: Sequence[Curve], styles: dict[str, ArmStyle], title: str, y_label: str, through: int | None = None
) -> CurvePanel:
    """A panel of curves by position, with the training context marked.

    Args:
        through: a number of tokens that gets a tick; None: the training context of the first curve.
    """
    return CurvePanel(
        curves,
        styles,
        title,
        "position (tokens)",
        y_label,
        token_range(curves),
        through=through or curves[0].context,
        marks=context_marks(curves, styles),
    )


def token_range(curves: Sequence[Curve], share: float = 1 / 8) -> tuple[float, float]:
    """Limits of an axis of positions: from a share of the shortest training context to the end of the last bin."""
    last = max(float(curve.x.max()) for curve in curves)
    return max(1.0, share * min(curve.context for curve in curves)), end_of_bin(last)


def x_range(found: Sequence[Curve], logarithmic: bool) -> tuple[float, float]:
    """Limits that contain all points, also those of single seeds; on a logarithmic axis all points above 0."""
    x = np.concatenate([x for curve in found for x in (curve.x, *(own for own, _ in curve.of_seeds))])
    x = x[x > 0] if logarithmic else x
    if not x.size:
        return (1.0, 2.0)
    low, high = float(x.min()), float(x.max())
    return (low, high) if low < high else (low / 2, 2 * low) if logarithmic else (low - 0.5, high + 0.5)


def end_of_bin(middle: float) -> float:
    """The end of the bin with this middle. Bins are quarters of octaves. A power of two stays unchanged."""
    quarter = 2.0 ** math.floor(math.log2(middle)) / 4
    return quarter * math.ceil(middle / quarter)


def note_on(curves: Sequence[Curve], seeds: Literal["band", "dots", "lines"] = "band", marked: bool = True) -> str:
    """A note that explains lines, bands, dots and, if contexts are `marked`, vertical lines without labels."""
    counts = sorted({curve.seeds for curve in curves} - {0})
    if not counts:
        return ""
    over = seeds_of(counts)
    if seeds == "lines":
        note = "Thin line: a seed"
    elif counts == [1]:
        note = "One seed" if seeds == "dots" else "Band: standard error over sequences (one seed)"
    elif seeds == "dots":
        note = f"Line: mean over {over}. Dot: a seed"
    else:
        note = f"Line: mean over {over}. Band: {_band(counts)}"
    if marked and len({curve.context for curve in curves}) > 1:
        note += ". Dotted: training context T of each arm"
    return note + (". Cross: not finite beyond this point" if any(curve.breaks_off() for curve in curves) else "")


def seeds_of(counts: Collection[int]) -> str:
    """The numbers of seeds of several means, as text. A mean without numbers does not count.

    >>> seeds_of([5, 3, 5]), seeds_of([5, 0])
    ('3 to 5 seeds', '5 seeds')
    """
    least, most = min(filter(None, counts)), max(counts)
    return f"{most} seeds" if least == most else f"{least} to {most} seeds"


def _band(counts: Sequence[int]) -> str:
    """The meaning of the bands of curves with these numbers of seeds, which are not all 1."""
    band = "range over seeds" + " without the outer tenths" * (counts[-1] >= OUTER_SEEDS)
    return f"{band} (one seed: standard error)" if counts[0] == 1 else band


def note_on_draws(curves: Sequence[Curve]) -> str:
    """The same for curves of a figure's own table, which has random draws instead of seeds."""
    banded = any(np.isfinite(curve.low).any() for curve in curves)
    crossed = any(curve.breaks_off() for curve in curves)
    return ". ".join(["Band: standard error over draws"] * banded + ["Cross: not finite beyond this point"] * crossed)


def common_limits(panels: Sequence[CurvePanel]) -> tuple[float, float] | None:
    """Limits of the y axis that contain all visible values of all panels; None if there are none."""
    fits = [fit for fit in (panel.fit() for panel in panels) if fit is not None]
    return (min(low for low, _ in fits), max(high for _, high in fits)) if fits else None


def rows_of(panels: Sequence[CurvePanel], height: float, note: str, same_y: bool = True) -> list[Row]:
    """Lay out panels in rows. With `same_y`, all have the same y limits, and only the first of a row has labels.

    More than `FEW` panels with the same y limits, and without dots for seeds, are small.
    """
    if same_y and len(panels) > FEW and panels[0].seeds != "dots":
        marks = dict.fromkeys(f"Dotted: {mark.text}" for panel in panels for mark in panel.marks if mark.text)
        columns = math.ceil(len(panels) / math.ceil(len(panels) / MOST_SMALL))
        two_lines = [replace(panel, title="\n".join(panel.title.rsplit(", ", 1))) for panel in panels]
        return small_rows(two_lines, columns, ". ".join([note] * bool(note) + [*marks]), 1.8, 1.3)
    columns = columns_for(len(panels))
    return in_rows(_beside(panels, columns, same_y), columns, height, note, LEAST)


def small_rows(panels: Sequence[CurvePanel], columns: int, note: str, height: float, least: float) -> list[Row]:
    """Lay out small panels in rows. All have the same y limits. The note has to explain their marks.

    Args:
        height, least: of a row, and when there is little room, inches.
    """
    beside = [SmallPanel(panel) for panel in _beside(panels, columns, same_y=True)]
    return in_rows(beside, columns, height, note, least)


def _beside(panels: Sequence[CurvePanel], columns: int, same_y: bool) -> list[CurvePanel]:
    """The panels for rows of `columns`. Only the first of a row has a label on the y axis.

    With `same_y`, all panels have the same y limits, and only the first of a row has numbers there.
    """
    if same_y:
        limits = common_limits(panels)
        panels = [replace(panel, y_limits=limits) for panel in panels]
    return [
        replace(panel, y_label="" if place % columns else panel.y_label, y_shared=same_y and place % columns > 0)
        for place, panel in enumerate(panels)
    ]
