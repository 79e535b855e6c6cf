"""Attention maps as images, with the entries that a layer needs to solve the task."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from math import ceil
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar, Literal

import numpy as np

from ssm.base.columns import maximum
from ssm.base.lazy import colors, matplotlib, patches
from ssm.base.lazy import polars as pl
from ssm.base.tables import read_provenance
from ssm.claims.panel_tables import existing_table
from ssm.claims.series import PlannedFigure
from ssm.figures.data import chosen_arms, loaded, panels
from ssm.figures.plot import ChosenArms, SeriesPlot
from ssm.figures.rows import UNBROKEN, Row
from ssm.figures.style import SMALL, VERMILION, WIDTH, ArmStyle
from ssm.specs.base import PositiveInts

if TYPE_CHECKING:
    from matplotlib.axes import Axes

MOST = 6  # maps side by side
HIGHEST = 2.4  # inches: height of a row
LEAST = 1.1  # inches: height of the smallest legible map


@dataclass(frozen=True)
class AttentionMapImage:
    """The map or mask of one layer."""

    arm: str
    layer: int
    mask: bool
    # (T, T) query, key: shares of a map or weights of a mask, means over examples. NaN above the diagonal, and if the
    # run diverged
    shares: np.ndarray
    behind: np.ndarray  # (K, 2) query and key of the token that has to be predicted


class AttentionMaps(ChosenArms, SeriesPlot):
    """The attention maps of one seed side by side: a panel for each arm and layer. Each row of a map sums to 1.

    The masks of a measurement with `mask` are drawn as they are.
    """

    reads: ClassVar[tuple[str, ...]] = ("attention_map",)
    kind: Literal["attention_maps"] = "attention_maps"
    # layers to draw, counted from 1; none: all measured layers
    layers: PositiveInts | None = None

    def draw(self, task: PlannedFigure, tables: Path, styles: dict[str, ArmStyle]) -> list[Row]:
        """A panel for each model, arm and layer. All share one color scale: that of the rows that predict an answer."""
        several = len(panels(task)) > 1
        found: list[tuple[str, list[AttentionMapImage], int]] = []  # prefix of the titles, images, seed
        labels = {arm: look.label for arm, look in self.looks(task, styles).items()}
        for model in panels(task):
            images, seed = layer_images(self, task, tables, model, labels)
            if images:
                found.append((f"{task.title_of(model)}: " if several else "", images, seed))
        every = [one for _, images, _ in found for one in images]
        if not every:
            return []
        answering = [one.shares[one.behind[:, 0]] if len(one.behind) else one.shares for one in every]  # (K, T) each
        finite = np.concatenate([values[np.isfinite(values)] for values in answering])
        largest = float(finite.max()) if finite.size else 1.0
        layers = sorted({one.layer for one in every})
        where = f" in layer {layers[0]}" if len(layers) == 1 else ""  # another plot may show another layer
        what, shades = f"seed {found[0][2]}, mean over examples", f"0 to {largest:.2f}"
        if every[0].mask:
            note = f"Masks: {what}; white to dark{where}: {shades}"
        else:
            note = f"Maps: {what}; across: the token read, down: the token that reads"
            note += f". White to dark{where}: {shades} of a row's weight"
        note += ". Outlined: the token to be predicted next" if any(len(one.behind) for one in every) else ""
        rows = []
        for prefix, images, _ in found:
            side_by_side = len({one.layer for one in images})
            columns = side_by_side if side_by_side > 1 else len(images)
            columns = ceil(columns / ceil(columns / MOST))  # no row is much shorter than the others
            for at in range(0, len(images), columns):
                beside = images[at : at + columns]
                side, titles = _titles(prefix, beside)
                sides = [side] + [""] * (len(beside) - 1)
                plotters = [partial(_draw_on, *each, largest) for each in zip(beside, titles, sides, strict=True)]
                rows.append(Row(min(HIGHEST, WIDTH / columns + 0.3), plotters, columns, note, LEAST))
        return rows


def _titles(prefix: str, beside: Sequence[AttentionMapImage]) -> tuple[str, list[str]]:
    """The label at the side of a row, and the title of each panel. The label is what all of them have."""
    arms, layers = [one.arm for one in beside], [one.layer for one in beside]
    if len(beside) > 1 and len(set(arms)) == 1:
        return f"{prefix}{arms[0]}", [f"layer{UNBROKEN}{layer}" for layer in layers]
    if len(beside) > 1 and len(set(layers)) == 1:
        return f"layer {layers[0]}", [f"{prefix}{arm}" for arm in arms]
    return "", [f"{prefix}{one.arm}, layer {one.layer}" for one in beside]


def layer_images(
    plot: AttentionMaps, task: PlannedFigure, tables: Path, panel: str, labels: Mapping[str, str]
) -> tuple[list[AttentionMapImage], int]:
    """The maps of a panel's first seed by arm and layer, and that seed."""
    wanted = chosen_arms(task, plot.arms)
    found = [one for one in loaded(task, tables, panel, *plot.measurement_names, *plot.reads) if one[0].arm in wanted]
    if not found:
        return [], 0
    first = found[0][0].seed
    images = []
    (name,) = plot.measurement_names
    own = [one for one in found if one[0].seed == first]
    for series, table in sorted(own, key=lambda one: wanted.index(one[0].arm)):
        mask = _has_masks(existing_table(task, tables, series.tables[name]))
        label = labels[series.arm] + ", masks" * mask
        for layer in plot.layers or table["layer"].unique().sort().to_list():
            rows = table.filter(pl.col("layer") == layer)
            if rows.height:
                images.append(_image(label, layer, rows, mask))
    return images, first


def _has_masks(table: Path) -> bool:
    """Whether the measurement that made a table has `mask`."""
    measurement = read_provenance(table).get("task", {}).get("measurement", {})
    return bool(measurement.get("mask", False))


def _image(arm: str, layer: int, rows: pl.DataFrame, mask: bool) -> AttentionMapImage:
    column = "weight" if mask else "share"
    length = maximum(rows["query"]) + 1
    shares = np.full((length, length), np.nan)
    means = rows.group_by("query", "key").agg(pl.col(column).mean())
    shares[means["query"].to_numpy(), means["key"].to_numpy()] = means[column].to_numpy()
    examples = rows["example"].n_unique()
    there = rows.filter(pl.col("offset") == 0).group_by("query", "key").agg(pl.len()).sort("query")
    alike = there.filter(pl.col("len") == examples)  # at the same place in all examples
    return AttentionMapImage(arm, layer, mask, shares, alike.select("query", "key").to_numpy())


def _draw_on(one: AttentionMapImage, title: str, side: str, largest: float, axes: Axes, columns: int) -> None:
    axes.grid(False)
    scale = colors.PowerNorm(0.6, 0, largest, clip=True)
    blues = matplotlib.colormaps["Blues"].with_extremes(bad="white")  # NaN is white also on a dark page
    axes.imshow(one.shares, cmap=blues, norm=scale, interpolation="nearest", aspect="auto")
    for query, key in one.behind:
        axes.add_patch(
            patches.Rectangle((key - 0.5, query - 0.5), 1, 1, fill=False, edgecolor=VERMILION, linewidth=0.7)
        )
    ticks: Sequence[int] = range(0, len(one.shares), max(1, -(-len(one.shares) // 4)))
    axes.set_xticks(ticks)
    axes.set_yticks(ticks)
    axes.tick_params(labelsize=SMALL, length=2)
    axes.set_title(title)
    axes.set_ylabel(side, fontsize=SMALL)
