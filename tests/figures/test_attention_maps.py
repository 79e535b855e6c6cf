"""Attention maps as images: their titles, cells and outlines."""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from figures import synthetic
from matplotlib.axes import Axes
from matplotlib.patches import Rectangle

from ssm.base.errors import ConfigError
from ssm.base.tables import read_table, write_table
from ssm.figures.draw import draw_figure
from ssm.specs.measurements import SCHEMAS

T = 5  # two letters, the separator and their copies: $ a b | a
MAPS = {"kind": "attention_maps", "measurement": "maps"}


def table(path: Path, layers: int = 2, scale: float = 1.0) -> None:
    """Two examples with share (1 + j + example) * scale at (i, j). The separator and the first copy predict letters."""
    rows = []
    for example, layer, i in itertools.product(range(2), range(1, layers + 1), range(T)):
        for j in range(i + 1):
            there = (j - (i - 2), j == i - 2) if i >= 3 else (None, None)
            share = (1 + j + example) * scale * layer / 10
            rows.append((example, layer, i, j, *there, -1.0, share))
    columns = SCHEMAS["attention_map"].columns
    synthetic.save(path, "attention_map", [dict(zip(columns, row, strict=True)) for row in rows])


def series(folder: Path, *arms: str, seeds: int = 2, **more: Any) -> list[dict[str, Any]]:
    found = []
    for arm in arms:
        for seed in range(4, 4 + seeds):
            table(folder / f"{arm}{seed}.parquet", scale=1.0 if seed == 4 else 0.1, **more)
            found.append(synthetic.series(arm, seed, maps=f"{arm}{seed}"))
    return found


def axes_of(folder: Path, plot: dict[str, Any], found: list[dict[str, Any]]) -> list[Axes]:
    return draw_figure(synthetic.task([MAPS | plot], found), folder).axes


def outlined(axes: Axes) -> list[tuple[float, float]]:
    """(query, key) of the outlined cells."""
    return [(one.get_y() + 0.5, one.get_x() + 0.5) for one in axes.patches if isinstance(one, Rectangle)]


def test_a_panel_is_the_map_of_a_layer_of_the_first_seed(tmp_path: Path) -> None:
    """It is a mean over examples. All panels share the color scale of the rows that predict an answer."""
    figure = draw_figure(synthetic.task([MAPS], series(tmp_path, "base", "passed")), tmp_path)
    assert "Outlined" in figure.get_supxlabel()
    found = figure.axes
    assert [axes.get_title(loc="left") for axes in found] == ["layer 1", "layer 2", "", ""]
    assert [axes.get_ylabel() for axes in found] == ["base", "", "passed", ""]
    shown = np.ma.filled(found[1].images[0].get_array(), np.nan)
    expected = np.where(np.tri(T, dtype=bool), (1.5 + np.arange(T)) * 2 / 10, np.nan)
    np.testing.assert_allclose(shown, expected)
    assert {axes.images[0].norm.vmax for axes in found} == {5.5 * 2 / 10}
    assert outlined(found[0]) == [(3, 1), (4, 2)], "the places of the copied letters"
    assert found[0].images[0].origin == "upper", "the first query is the top row"
    assert found[0].images[0].cmap(np.nan) == (1.0, 1.0, 1.0, 1.0), "white above the diagonal, also on a dark page"


def test_masks_are_drawn_as_they_are(tmp_path: Path) -> None:
    """The weights of these tables are all -1. The measurement that made them says that they are masks."""
    found, columns = series(tmp_path, "base", seeds=1), SCHEMAS["attention_map"]
    frame = read_table(tmp_path / "base4.parquet", columns)
    write_table(frame, columns, tmp_path / "base4.parquet", {"task": {"measurement": {"mask": True}}})
    figure = draw_figure(synthetic.task([MAPS], found), tmp_path)
    assert figure.get_supxlabel().startswith("Masks: seed 4")
    assert figure.axes[0].get_ylabel() == "base, masks"
    shown = np.ma.filled(figure.axes[0].images[0].get_array(), np.nan)
    np.testing.assert_allclose(shown, np.where(np.tri(T, dtype=bool), -1.0, np.nan))


def test_arms_and_layers_can_be_selected(tmp_path: Path) -> None:
    found = series(tmp_path, "base", "passed")
    (axes,) = axes_of(tmp_path, {"arms": ["passed"], "layers": [2]}, found)
    assert axes.get_title(loc="left") == "passed, layer 2"
    panels = axes_of(tmp_path, {"layers": [2]}, found)
    assert [axes.get_title(loc="left") for axes in panels] == ["base", "passed"]
    assert [axes.get_ylabel() for axes in panels] == ["layer 2", ""]
    arms = {"passed": {"label": "P", "training": "pretrain"}}
    content = {"models": ["tiny"], "data": "d", "seeds": [1], "arms": arms, "collect": []}
    content["measurements"] = [{"kind": "attention_map", "name": "maps", "length": 2}]
    with pytest.raises(ConfigError, match="arms: unknown arm 'pased'; did you mean 'passed'"):
        synthetic.task([MAPS | {"arms": ["pased"]}], found, **content)


def test_a_long_name_does_not_shrink_the_panels(tmp_path: Path) -> None:
    found = [one | {"label": "a long name " * 5} for one in series(tmp_path, "base", seeds=1, layers=4)]
    figure = draw_figure(synthetic.task([MAPS], found), tmp_path)
    figure.draw_without_rendering()
    assert len(figure.axes) == 4
    assert min(axes.get_position().width for axes in figure.axes) > 0.15


def test_a_diverged_run_has_empty_maps(tmp_path: Path) -> None:
    found = series(tmp_path, "base", seeds=1)
    synthetic.diverge(tmp_path / "base4.parquet", "attention_map")
    shown = axes_of(tmp_path, {}, found)[0].images[0].get_array()
    assert np.isnan(np.ma.filled(shown, np.nan)).all()
