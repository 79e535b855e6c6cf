"""Plots of any column and of any quantity: their artists have the values of the tables."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from figures import synthetic
from figures.synthetic import line
from figures.test_attention_maps import MAPS
from figures.test_attention_maps import series as attention_series
from matplotlib.axes import Axes
from matplotlib.colors import to_hex
from matplotlib.patches import Rectangle
from matplotlib.text import Text

from ssm.base.errors import ConfigError, TableError
from ssm.figures.data import Line
from ssm.figures.draw import draw, draw_figure
from ssm.figures.plots.curves import Curves
from ssm.figures.plots.heat_map import step_across
from ssm.figures.plots.learning_curves import thinned
from ssm.figures.rows import wrapped
from ssm.figures.style import ARMS, GREY, SMALL

KEYS = {"measurement": "passkey", "column": "correct"}
AT = {"kind": "value_at", **KEYS}
LENGTHS, DEPTHS = (64, 128, 256), (0.0, 0.5, 1.0)


def keys(path: Path, right: Callable[[int, float], int]) -> str:
    """A table in which `right(length, depth)` of 10 keys are found; returns the name of the table."""
    rows = [
        {"length": length, "depth": depth, "trial": trial, "correct": trial < right(length, depth), "digits_right": 0}
        for length in LENGTHS
        for depth in DEPTHS
        for trial in range(10)
    ]
    synthetic.save(path, "passkey", rows)
    return path.stem


def two_arms(folder: Path, seeds: int = 2) -> list[dict[str, Any]]:
    """Base finds 8 - seed keys at 64, 4 at 128, 1 at 256; State Passing finds all. Depth 1 costs one key."""
    found = []
    for seed in range(seeds):
        right = {64: 8 - seed, 128: 4, 256: 1}
        base = keys(folder / f"b{seed}.parquet", lambda length, depth, r=right: r[length] - (depth == 1))
        far = keys(folder / f"p{seed}.parquet", lambda length, depth: 10 - (depth == 1))
        for arm, table in (("base", base), ("state_passing", far)):
            found.append(synthetic.series(arm, seed, context=64, passkey=table))
    return found


def lost(folder: Path, arm: str) -> dict[str, Any]:
    """A series whose run diverged."""
    table = keys(folder / f"{arm}.parquet", lambda length, depth: 10)
    synthetic.diverge(folder / f"{table}.parquet", "passkey")
    return synthetic.series(arm, 0, context=64, passkey=table)


def axes_of(folder: Path, plot: Mapping[str, Any], series: list[dict[str, Any]], **figure: Any) -> list[Axes]:
    return draw_figure(synthetic.task([dict(plot)], series, **figure), folder).axes


def texts(axes: Axes) -> list[str]:
    return [text.get_text() for text in axes.texts]


def test_a_curve_is_the_mean_of_its_column(tmp_path: Path) -> None:
    """It is averaged over depths and trials of a seed first, and then over seeds, whose range is the band."""
    plot = {"kind": "curves", **KEYS, "x": "length", "tokens": True, "level": 0.1, "y_label": "keys found"}
    (axes,) = axes_of(tmp_path, plot, two_arms(tmp_path))
    base = line(axes, "base")
    assert base.get_xdata().tolist() == list(LENGTHS)
    np.testing.assert_allclose(base.get_ydata(), [(2 * 7.5 + 6.5) / 30, 11 / 30, 2 / 30])
    np.testing.assert_allclose(line(axes, "state passing").get_ydata(), 29 / 30)
    band = axes.collections[0].get_paths()[0].vertices[:, 1]
    assert band.max() == pytest.approx(23 / 30)
    assert axes.get_xscale() == "log"
    assert [text.get_text() for text in axes.get_xticklabels()] == ["64", "128", "256"]
    assert (axes.get_xlabel(), axes.get_ylabel()) == ("length (tokens)", "keys found")
    assert "T = 64" in texts(axes)
    assert any(list(each.get_ydata()) == [0.1, 0.1] for each in axes.lines)


def test_one_panel_drawings_of_one_kind_share_a_row(tmp_path: Path) -> None:
    """Drawings of two models, or separated by another kind, have their own rows."""
    one = {"kind": "curves", **KEYS, "x": "length"}
    two, cells = (
        one | {"column": "digits_right"},
        {"kind": "heat_map", **KEYS, "x": "length", "y": "depth", "arms": ["base"]},
    )

    def places(drawings: list[dict[str, Any]], series: list[dict[str, Any]]) -> list[tuple[int, int]]:
        specs = [axes.get_subplotspec() for axes in draw_figure(synthetic.task(drawings, series), tmp_path).axes]
        return [(spec.rowspan.start, spec.colspan.start) for spec in specs]

    series = two_arms(tmp_path)
    assert places([one, two], series) == [(0, 0), (0, 1)]
    assert places([one, two, one], series) == [(0, 0), (0, 1), (0, 2)]
    assert places([one, cells, two], series) == [(0, 0), (1, 0), (2, 0)]
    assert places([cells, cells], series) == [(0, 0), (1, 0)]
    heads = [synthetic.series(f"d{n}", 1, context=64, passkey="b0") for n in range(4)]
    small = cells | {"x": "depth", "y": "length", "arms": [f"d{n}" for n in range(4)], "percent": True}
    assert places([one, two, small], series + heads)[:3] == [(0, 0), (1, 0), (2, 0)], "small maps have a row of four"
    both = series + [other | {"panel": "small"} for other in series]
    assert places([one, two], both) == [(0, 0), (0, 1), (1, 0), (1, 1)]
    beside = draw_figure(synthetic.task([one, two], series), tmp_path)
    assert [axes.get_ylabel() for axes in beside.axes] == ["correct", "digits right"]
    long = one | {"x_label": "length of the string", "y_label": "keys found at twice the length of training, by digits"}
    beside = draw_figure(synthetic.task([one, long, long], series), tmp_path)
    beside.draw_without_rendering()
    assert [bool(axes.get_title("left")) for axes in beside.axes] == [True, False, False], "one title for one model"
    for axes in beside.axes:
        label, whole = axes.yaxis.label.get_window_extent(), axes.get_tightbbox()
        assert whole is not None
        assert label.y0 >= 0, "the label stays inside the picture and beside its axes"
        assert label.height <= 1.25 * axes.bbox.height
        assert whole.x1 <= beside.bbox.width + 1


def own(folder: Path) -> None:
    """The figure's own table: two formats, two arithmetics, and two draws at each of 1, 2 and 3 halvings."""
    rows = [
        {
            **{"format": name, "arithmetic": arithmetic, "state": "carried", "inputs": "random", "share": 0.0},
            **{"weight": 1.0, "above": True, "predicted": 1, "steps": 9, "position": 1, "overflows": True},
            **{"halvings": halvings, "draw": draw, "within": True, "scaled": base + halvings + 2.0 * draw},
        }
        for name, base in (("float16", 0), ("float32", 10))
        for arithmetic in ("cpp", "loop")
        for halvings in (1, 2, 3)
        for draw in (1, 2)
    ]
    synthetic.save(folder / "overflow-1.parquet", "overflow", rows)


def test_curves_of_the_figures_own_table(tmp_path: Path) -> None:
    """A panel for each value of one key, a curve for each value of another, and the standard error over draws."""
    own(tmp_path)
    plot = {"kind": "curves", "measurement": "overflow", "x": "halvings", "column": "scaled"}
    measured = {"kind": "overflow", "formats": ["float32"], "arithmetics": ["cpp"], "halvings": [1], "shares": [0]}
    given: dict[str, Any] = {"target": "ls_eq40", "tables": ["overflow-1"], "measurements": [measured]}
    panels = axes_of(tmp_path, plot | {"by": "arithmetic", "split": "format"}, [], **given)
    assert [axes.get_title("left") for axes in panels] == ["float16", "float32"]
    for axes, base in zip(panels, (0, 10), strict=True):
        for label in ("cpp", "loop"):
            np.testing.assert_allclose(line(axes, label).get_ydata(), [base + 4, base + 5, base + 6])
        band = axes.collections[0].get_paths()[0].vertices[:, 1]
        assert (band.min(), band.max()) == pytest.approx((base + 3, base + 7))  # the standard error of 3 and 5 is 1
    (axes,) = axes_of(tmp_path, plot | {"where": {"format": "float32"}}, [], **given)
    np.testing.assert_allclose(axes.lines[0].get_ydata(), [14, 15, 16])
    note = draw_figure(synthetic.task([plot], [], **given), tmp_path).get_supxlabel()
    assert note == "Band: standard error over draws"
    (tmp_path / "overflow-1.parquet").unlink()
    with pytest.raises(
        TableError, match=r"overflow-1\.parquet: no such table .*`snakemake --cores all ls_eq40 --config scale=smoke` m"
    ):
        axes_of(tmp_path, plot, [], **given)


def test_cells_of_the_figures_own_table(tmp_path: Path) -> None:
    own(tmp_path)
    plot = {"kind": "heat_map", "measurement": "overflow", "x": "halvings", "y": "arithmetic", "column": "scaled"}
    plot |= {"split": "format", "title": "Scaled"}
    first, second = axes_of(tmp_path, plot, [], tables=["overflow-1"])
    assert [axes.get_title("left") for axes in (first, second)] == ["Scaled\nfloat16", "\nfloat32"]
    assert [text.get_text() for text in second.texts] == ["14", "15", "16"] * 2


def test_panels_of_a_shared_row_keep_different_titles(tmp_path: Path) -> None:
    own(tmp_path)
    one = {"kind": "curves", "measurement": "overflow", "x": "halvings", "column": "scaled", "split": "format"}
    half, single = ({"where": {"format": name}} for name in ("float16", "float32"))
    task = synthetic.task([one | half, one | single, one | half], [], tables=["overflow-1"])
    panels = draw_figure(task, tmp_path).axes
    assert [axes.get_title("left") for axes in panels] == ["float16", "float32", "float16"]
    assert [axes.get_subplotspec().colspan.start for axes in panels] == [0, 1, 2]


@pytest.mark.parametrize(
    ("text", "room", "lines"),
    [
        ("keys found out-of-distribution", 1.0, ["keys found", "out-of-distribution"]),
        ("keys found", -1.0, ["keys", "found"]),
    ],
)
def test_text_is_wrapped_only_between_words(text: str, room: float, lines: list[str]) -> None:
    assert wrapped(text, room).split("\n") == lines


@pytest.mark.parametrize(
    ("changed", "says"),
    [
        ({"by": "format", "split": "format"}, "split: 'by' already draws a curve for each 'format'"),
        ({"arms": ["base"]}, "arms: leave it out; 'overflow' is measured on the figure"),
    ],
)
def test_contradictory_keys_of_curves_are_rejected(changed: dict[str, Any], says: str) -> None:
    plot = {"kind": "curves", "measurement": "overflow", "x": "halvings", "column": "scaled"}
    Curves.parse(plot | {"by": "format", "split": "arithmetic"}, "fig.yaml")
    with pytest.raises(ConfigError, match=re.escape(says)):
        Curves.parse(plot | changed, "fig.yaml")


def test_difference_from_another_panel(tmp_path: Path) -> None:
    """Differences are taken by arm and seed, so that the shared effect of a seed cancels."""
    found = []
    for seed in range(3):
        for panel, arms in (("tiny", ("base", "passed")), ("other", ("base",))):
            for arm in arms:
                rate = {"tiny": 0.3, "other": 0.1}[panel]
                rows = [
                    {"sequence": n, "distance": d, "log_influence": seed**3 - rate * d - n}
                    for n in range(2)
                    for d in range(panel == "other", 5)
                ]
                name = f"{panel}{arm}{seed}"
                synthetic.save(tmp_path / f"{name}.parquet", "influence", rows)
                found.append(synthetic.series(arm, seed, panel=panel, influence=name))
    plot = {"kind": "curves", "measurement": "influence", "x": "distance", "column": "log_influence"}
    plot["against"] = {"tiny": "other"}
    (axes,) = axes_of(tmp_path, plot, found, models=["tiny", "other"])
    assert axes.get_title(loc="left") == "tiny against other"
    base = line(axes, "base")
    assert base.get_xdata().tolist() == [1, 2, 3, 4]
    np.testing.assert_allclose(base.get_ydata(), [-0.2, -0.4, -0.6, -0.8])
    assert [each.get_label() for each in axes.lines if not str(each.get_label()).startswith("_")] == ["base"]
    with pytest.raises(ConfigError, match=r"drawings\.curves\.against: 'othr' is not in 'models'"):
        synthetic.task([plot | {"against": {"tiny": "othr"}}], found, models=["tiny", "other"], collect=[])


def test_a_curve_for_each_value_of_a_key(tmp_path: Path) -> None:
    """Only selected arms are drawn. A panel has no curve for a value that it lacks."""
    found = []
    for panel, signals in (("tiny", ("b", "h")), ("other", ("block",))):
        for arm in ("base", "passed"):
            rows = [
                {"sequence": 0, "layer": layer, "depth": layer / 2, "signal": name, "relative_to_b": None}
                | {"pairwise_distance": float(layer * (1 + signals.index(name)))}
                for layer in (1, 2)
                for name in signals
            ]
            synthetic.save(tmp_path / f"{panel}{arm}.parquet", "smoothness", rows)
            found.append(synthetic.series(arm, 1, panel=panel, smoothness=f"{panel}{arm}"))
    plot = {
        "kind": "curves",
        "measurement": "smoothness",
        "x": "depth",
        "column": "pairwise_distance",
        "by": "signal",
    }
    tiny, other = axes_of(tmp_path, plot | {"arms": ["base"]}, found, models=["tiny", "other"])
    assert {str(each.get_label()): each.get_ydata().tolist() for each in tiny.lines} == {"b": [1, 2], "h": [2, 4]}
    assert [str(each.get_label()) for each in other.lines] == ["block"]
    assert len({each.get_color() for each in (*tiny.lines, *other.lines)}) == 3
    tiny, _ = axes_of(tmp_path, plot, found, models=["tiny", "other"])
    assert [str(each.get_label()) for each in tiny.lines] == ["base, b", "passed, b", "base, h", "passed, h"]
    alone = plot | {"by": None, "where": {"signal": "h"}}
    (tiny,) = axes_of(tmp_path, alone, found, models=["tiny", "other"])
    assert tiny.get_title(loc="left") == "tiny"
    with pytest.raises(ConfigError, match="unknown arm 'bose'"):
        synthetic.task([plot | {"arms": ["bose"]}], found, collect=[], arms={"base": None})


def test_a_curve_has_the_selected_rows(tmp_path: Path) -> None:
    plot = {"kind": "curves", **KEYS, "x": "depth", "where": {"length": 64}}
    (axes,) = axes_of(tmp_path, plot, two_arms(tmp_path, seeds=1))
    np.testing.assert_allclose(line(axes, "base").get_ydata(), [0.8, 0.8, 0.7])
    assert (axes.get_xscale(), axes.get_xlabel(), axes.get_ylabel()) == ("linear", "depth", "correct")
    error = np.std([1.0] * 8 + [0.0] * 2, ddof=1) / math.sqrt(10)  # one seed: standard error over trials
    band = axes.collections[0].get_paths()[0].vertices
    assert band[band[:, 0] == 0, 1].max() == pytest.approx(0.8 + error)
    with pytest.raises(TableError, match="the column 'depth' of a passkey table is Float64 and cannot be 'deep'"):
        axes_of(tmp_path, plot | {"where": {"depth": "deep"}}, two_arms(tmp_path))
    with pytest.raises(TableError, match="no column 'lenght'; did you mean 'length'"):
        axes_of(tmp_path, plot | {"x": "lenght"}, two_arms(tmp_path))


def test_exponential_of_logarithms_at_the_middle_of_bins(tmp_path: Path) -> None:
    synthetic.position_loss(tmp_path / "p.parquet", 64, lambda p: 1.0, offsets=(0.0, 0.2))
    plot = {"kind": "curves", "measurement": "position_loss", "column": "loss", "x": "position", "exponential": True}
    (axes,) = axes_of(tmp_path, plot, [synthetic.series("base", 0, position_loss="p")])
    drawn = line(axes, "base")
    assert drawn.get_xdata()[[0, -1]].tolist() == [0.5, 60]
    np.testing.assert_allclose(drawn.get_ydata(), math.exp(1.1))


def learning(folder: Path, arm: str, seed: int, steps: int = 100) -> dict[str, Any]:
    rows = [{"step": step, "tokens": step, "loss": float(step), "accuracy": None} for step in range(1, steps + 1)]
    synthetic.save(folder / f"{arm}{seed}.parquet", "learning_curve", rows)
    return synthetic.series(arm, seed, learning_curve=f"{arm}{seed}")


def test_a_learning_curve_has_means_of_neighboring_steps(tmp_path: Path) -> None:
    plot = {"kind": "learning_curves", "column": "loss", "points": 8}
    (axes,) = axes_of(tmp_path, plot, [learning(tmp_path, "base", 0)])
    drawn = line(axes, "base")
    expected = [*(np.arange(7) * 13 + 7.0), 96.0]  # 13 steps each, and the last 9
    np.testing.assert_allclose(drawn.get_xdata(), expected)
    np.testing.assert_allclose(drawn.get_ydata(), expected)
    assert (axes.get_xlabel(), axes.get_ylabel()) == ("step", "loss")
    few = thinned(Line(*(np.arange(3.0) for _ in range(3))), size=1)
    np.testing.assert_array_equal(few.x, np.arange(3.0))


def test_a_seed_that_ends_early_shortens_the_curve_of_its_arm_alone(tmp_path: Path) -> None:
    plot = {"kind": "learning_curves", "column": "loss", "points": 8}
    lengths = (("base", 0, 100), ("base", 1, 60), ("state_passing", 0, 16), ("state_passing", 1, 16))
    (axes,) = axes_of(tmp_path, plot, [learning(tmp_path, *one) for one in lengths])
    np.testing.assert_allclose(line(axes, "base").get_xdata(), np.arange(4) * 13 + 7.0)
    np.testing.assert_allclose(line(axes, "state passing").get_xdata(), np.arange(8) * 2 + 1.5)


def test_every_seed_has_its_own_line(tmp_path: Path) -> None:
    """Only the chosen arms are drawn, and an arm is named once."""
    seeds = [learning(tmp_path, arm, seed) for arm in ("base", "state_passing") for seed in range(3)]
    plot = {"kind": "learning_curves", "column": "loss", "each_seed": True, "arms": ["base"], "title": "every seed"}
    (axes,) = axes_of(tmp_path, plot, seeds)
    assert axes.get_title("left") == "every seed"
    assert [str(each.get_label()).startswith("_") for each in axes.lines] == [False, True, True]
    assert {each.get_color() for each in axes.lines} == {ARMS["base"].color}
    assert not axes.collections, "no band"


def grid(folder: Path, seeds: int = 2) -> list[dict[str, Any]]:
    """Of 10 keys, 1, 2 and 4 are found at d_state 16, 32 and 64; 3 more with mimetic init, and one more per seed."""
    found = []
    for size, count in ((16, 1), (32, 2), (64, 4)):
        for mimetic in ("off", "on"):
            for seed in range(seeds):
                right = count + 3 * (mimetic == "on") + seed
                table = keys(folder / f"d{size}{mimetic}{seed}.parquet", lambda length, depth, r=right: r)
                one = synthetic.series(f"d{size}_{mimetic}", seed, passkey=table)
                found.append(one | {"axes": {"d_state": size, "mimetic": mimetic}})
    return found


def test_a_sweep_has_a_curve_per_family_and_a_tick_per_number(tmp_path: Path) -> None:
    plot = {"kind": "sweep", "of": AT, "over": "d_state", "log_x": True}
    (axes,) = axes_of(tmp_path, plot, grid(tmp_path))
    np.testing.assert_allclose(line(axes, "mimetic off").get_ydata(), [0.15, 0.25, 0.45])
    np.testing.assert_allclose(line(axes, "mimetic on").get_ydata(), [0.45, 0.55, 0.75])
    assert line(axes, "mimetic on").get_xdata().tolist() == [16, 32, 64]
    assert [text.get_text() for text in axes.get_xticklabels()] == ["16", "32", "64"]
    dots = [each.get_xydata().tolist() for each in axes.lines if each.get_linestyle() == "None"]
    assert dots[:2] == [[[16, 0.1], [16, 0.2]], [[32, 0.2], [32, 0.3]]], "a dot for each seed"
    (axes,) = axes_of(tmp_path, plot | {"where": {"mimetic": "on"}}, grid(tmp_path))
    assert [str(each.get_label()) for each in axes.lines if not str(each.get_label()).startswith("_")] == ["all"]
    named = {"base": ["d16_off", "d32_off", "d64_off"], "state_passing": ["d16_on", "d32_on", "d64_on"]}
    plot = {"kind": "sweep", "of": AT, "families": named, "at": [1, 2, 3], "x_label": "layers"}
    (axes,) = axes_of(tmp_path, plot, grid(tmp_path))
    np.testing.assert_allclose(line(axes, "state passing").get_ydata(), [0.45, 0.55, 0.75])
    assert line(axes, "state passing").get_color() == ARMS["state_passing"].color
    assert axes.get_xlabel() == "layers"


def test_a_sweep_of_a_ratio_has_its_geometric_mean(tmp_path: Path) -> None:
    plot = {"kind": "sweep", "of": AT | {"scale": "ratio", "against": "d16_off"}, "over": "d_state"}
    (axes,) = axes_of(tmp_path, plot, grid(tmp_path))
    np.testing.assert_allclose(line(axes, "mimetic off").get_ydata(), [1, math.sqrt(2 * 1.5), math.sqrt(4 * 2.5)])


def test_a_sweep_is_in_the_order_of_its_numbers_and_says_which_curves_have_none(tmp_path: Path) -> None:
    series = [*two_arms(tmp_path), lost(tmp_path, "one"), lost(tmp_path, "other")]
    families = {"found": ["state_passing", "base"], "lost": ["one", "other"]}
    plot = {"kind": "sweep", "of": AT, "families": families, "at": [2, 1]}
    both = [*series, *(one | {"panel": "small"} for one in series)]
    figure = draw_figure(synthetic.task([plot], both), tmp_path)
    assert [line(axes, "found").get_xdata().tolist() for axes in figure.axes] == [[1, 2], [1, 2]]
    assert figure.get_supxlabel() == "Line: mean over 2 seeds. Dot: a seed. Missing point: no number"
    (legend,) = figure.legends
    assert [text.get_text() for text in legend.get_texts()] == ["found", "lost (no number: tiny, small)"]


def test_a_diverged_run_has_no_point_bar_or_cell(tmp_path: Path) -> None:
    """Other seeds do not replace it."""
    series = grid(tmp_path)
    synthetic.diverge(tmp_path / "d32off1.parquet", "passkey")
    (axes,) = axes_of(tmp_path, {"kind": "sweep", "of": AT, "over": "d_state"}, series)
    np.testing.assert_array_equal(np.isfinite(line(axes, "mimetic off").get_ydata()), [True, False, True])
    assert np.isfinite(line(axes, "mimetic on").get_ydata()).all()
    (axes,) = axes_of(tmp_path, {"kind": "bars", "of": AT, "arms": ["d16_off", "d32_off"]}, series)
    assert "d32 off (diverged, or no number)" in texts(axes)
    assert len(axes.patches) == 1
    plot = {"kind": "heat_map", **KEYS, "x": "length", "y": "depth", "arms": ["d16_off", "d32_off"]}
    maps = axes_of(tmp_path, plot, series)
    sound, diverged = ([patch.get_fill() for patch in axes.patches] for axes in maps)
    assert (all(sound), any(diverged), len(diverged)) == (True, False, 9)
    assert texts(maps[1]) == []
    alone = [one for one in series if one["arm"] == "d32_off"][1:]
    (axes,) = axes_of(tmp_path, {"kind": "text", **KEYS}, alone)
    assert texts(axes) == ["This figure has no arm at this scale."]


def test_a_bar_is_a_mean_and_a_dot_is_a_seed(tmp_path: Path) -> None:
    plot = {"kind": "bars", "of": AT | {"where": {"length": 64, "depth": 0.0}}, "level": 0.1, "label": "keys found"}
    (axes,) = axes_of(tmp_path, plot, two_arms(tmp_path))
    assert [patch.get_width() for patch in axes.patches] == pytest.approx([0.75, 1.0])
    dots = [sorted(each.get_xdata()) for each in axes.lines if each.get_marker() == "o"]
    assert dots == [pytest.approx([0.7, 0.8]), pytest.approx([1.0, 1.0])]
    heights = [each.get_ydata() for each in axes.lines if each.get_marker() == "o"]
    assert all(len(set(one)) == 2 for one in heights), "equal seeds have different heights"
    assert texts(axes) == ["base", "state passing"]
    assert axes.get_xlabel() == "keys found"
    assert axes.get_xlim()[0] == 0
    assert axes.get_xlim()[1] > 1
    both = two_arms(tmp_path) + [one | {"panel": "small"} for one in two_arms(tmp_path)]
    assert [axes.get_title(loc="left") for axes in axes_of(tmp_path, plot, both)] == ["tiny", "small"]


def test_bars_of_a_shared_row_share_their_lines(tmp_path: Path) -> None:
    """Each arm has one line. The first panel names it, even if it has no bar there."""
    few, all_ = {"kind": "bars", "of": AT, "arms": ["base"], "label": "few"}, {"kind": "bars", "of": AT, "label": "all"}
    rest = all_ | {"arms": ["state_passing"], "label": "rest"}
    series = two_arms(tmp_path)
    figure = draw_figure(synthetic.task([few, all_, rest], series), tmp_path)
    assert [axes.get_subplotspec().colspan.start for axes in figure.axes] == [0, 1, 2]  # type: ignore[union-attr]
    assert [axes.get_xlabel() for axes in figure.axes] == ["few", "all", "rest"]
    assert [axes.get_title("left") for axes in figure.axes] == ["tiny", "", ""]
    assert [[round(patch.get_y() + 0.2) for patch in axes.patches] for axes in figure.axes] == [[0], [0, 1], [1]]
    assert {axes.get_ylim() for axes in figure.axes} == {(1.4, -0.85)}
    said = [[text for text in texts(axes) if text] for axes in figure.axes]
    assert said == [["base", "not measured", "state passing"], [], ["not measured"]]
    named = [one | {"label": 4 * one["label"]} for one in series]
    places = [axes.get_subplotspec() for axes in draw_figure(synthetic.task([few, all_, rest], named), tmp_path).axes]
    assert [(one.rowspan.start, one.colspan.start) for one in places if one] == [(0, 0), (0, 1), (1, 0)]


def test_bars_have_no_color_of_a_line_in_the_legend(tmp_path: Path) -> None:
    """Their names are beside them. An arm with a line and a bar has the same color in both."""
    table = keys(tmp_path / "t.parquet", lambda length, depth: 5)
    series = [synthetic.series(f"arm_{i}", 0, passkey=table) for i in range(10)]
    curves = {"kind": "curves", **KEYS, "x": "length", "arms": [f"arm_{i}" for i in range(3, 10)]}
    first, second = draw_figure(synthetic.task([{"kind": "bars", "of": AT}, curves], series), tmp_path).axes
    bars = [to_hex(patch.get_facecolor()) for patch in first.patches]
    assert bars[:3] == [GREY] * 3
    assert bars[3:] == [line(second, f"arm {i}").get_color() for i in range(3, 10)]
    assert len(set(bars)) == 8


SHORT_AND_LONG = {"short": {"where": {"length": 64}}, "long": {"where": {"length": 256}}}


def test_an_arm_has_a_bar_for_each_variant(tmp_path: Path) -> None:
    """With `together`, all models are in one panel, which names them."""
    plot = {"kind": "bars", "of": AT | {"where": {"depth": 0.0}}, "each": SHORT_AND_LONG, "together": True}
    both = [*two_arms(tmp_path), *(one | {"panel": "small"} for one in two_arms(tmp_path))]
    figure = draw_figure(synthetic.task([plot], both), tmp_path)
    (axes,) = figure.axes
    assert texts(axes) == ["tiny, base", "tiny, state passing", "small, base", "small, state passing"]
    assert [patch.get_width() for patch in axes.patches] == pytest.approx([0.75, 0.1, 1.0, 1.0] * 2)
    lines = [patch.get_y() + patch.get_height() / 2 for patch in axes.patches[:4]]
    assert lines == pytest.approx([-0.1, 0.1, 0.9, 1.1])
    assert [text.get_text() for text in figure.legends[0].get_texts()] == ["short", "long"]
    alone = [one | {"panel": "small"} if one["arm"] == "state_passing" else one for one in two_arms(tmp_path)]
    (axes,) = axes_of(tmp_path, plot | {"arms": ["state_passing"]}, alone)
    assert texts(axes) == ["small"], "one arm of several models is named by its model"


@pytest.mark.parametrize(
    ("plot", "note"),
    [
        ({"kind": "bars", "of": AT}, "Bar: mean over 2 to 3 seeds. Dot: a seed"),
        ({"kind": "table", "of": AT, "head": "keys"}, "Mean over 2 to 3 seeds ± their standard deviation"),
    ],
)
def test_a_note_has_the_seeds_of_all_arms_with_numbers(plot: dict[str, Any], note: str, tmp_path: Path) -> None:
    fewer = [*two_arms(tmp_path, seeds=3)[:-1], lost(tmp_path, "lost")]
    assert draw_figure(synthetic.task([plot], fewer), tmp_path).get_supxlabel() == note


def test_a_table_has_a_row_for_each_arm_and_a_column_for_each_variant(tmp_path: Path) -> None:
    """The mean over seeds, and their standard deviation."""
    plot = {"kind": "table", "of": AT | {"where": {"depth": 0.0}}, "each": SHORT_AND_LONG, "head": "keys"}
    figure = draw_figure(synthetic.task([plot], two_arms(tmp_path)), tmp_path)
    (axes,) = figure.axes
    assert texts(axes)[:6] == ["keys", "short", "long", "base", "0.75 ± 0.07", "0.10 ± 0.00"]
    assert texts(axes)[6:] == ["state passing", "1.00 ± 0.00", "1.00 ± 0.00"]
    assert "standard deviation" in figure.get_supxlabel()
    both = [*two_arms(tmp_path, seeds=1), *(one | {"panel": "small"} for one in two_arms(tmp_path, seeds=1))]
    (axes,) = axes_of(tmp_path, plot | {"percent": True}, both)
    assert texts(axes)[3:8] == ["tiny", "base", "80.0", "10.0", "state passing"], "a heading for each model"
    (axes,) = axes_of(tmp_path, plot | {"arms": ["base"]}, both)
    assert texts(axes)[3:] == ["tiny", "0.80", "0.10", "small", "0.80", "0.10"]
    synthetic.diverge(tmp_path / "b0.parquet", "passkey")
    (axes,) = axes_of(tmp_path, plot | {"arms": ["base"]}, both[:2])
    assert texts(axes)[4:] == ["no number", "no number"]


def test_the_cells_of_a_table_do_not_overlap(tmp_path: Path) -> None:
    """Narrow columns have the spread below the mean, and long names have several lines."""
    many = {f"the column {n}": {"where": {"length": 64}} for n in range(8)}
    named = [one | {"label": "a name that is very long indeed, " + one["label"]} for one in two_arms(tmp_path)]
    figure = draw_figure(synthetic.task([{"kind": "table", "of": AT, "each": many}], named), tmp_path)
    figure.draw_without_rendering()
    boxes = [text.get_window_extent().shrunk(0.98, 0.8) for text in figure.axes[0].texts]
    assert not any(one.overlaps(other) for place, one in enumerate(boxes) for other in boxes[:place])
    assert all(box.x0 >= 0 and box.x1 <= figure.bbox.width for box in boxes)


def test_a_negative_bar_starts_at_zero(tmp_path: Path) -> None:
    plot = {"kind": "bars", "of": AT | {"against": "state_passing", "where": {"length": 64}}, "arms": ["base"]}
    (axes,) = axes_of(tmp_path, plot, two_arms(tmp_path))
    (bar,) = axes.patches
    assert (bar.get_x() + bar.get_width(), bar.get_x()) == pytest.approx((21.5 / 30 - 29 / 30, 0.0))
    assert axes.get_xlim()[0] < 21.5 / 30 - 29 / 30


def test_a_heat_map_has_a_cell_for_each_setting(tmp_path: Path) -> None:
    plot = {"kind": "heat_map", **KEYS, "x": "length", "y": "depth", "percent": True, "limits": [0, 1]}
    base, passing = axes_of(tmp_path, plot, two_arms(tmp_path))
    assert [axes.get_title(loc="left") for axes in (base, passing)] == ["base", "state passing"]
    cells = {text.get_position(): text.get_text() for text in base.texts}
    assert cells == {
        (0.5, 0.5): "75", (1.5, 0.5): "40", (2.5, 0.5): "10",
        (0.5, 1.5): "75", (1.5, 1.5): "40", (2.5, 1.5): "10",
        (0.5, 2.5): "65", (1.5, 2.5): "30", (2.5, 2.5): "0",
    }  # fmt: skip
    assert [text.get_text() for text in base.get_xticklabels()] == ["64", "128", "256"]
    assert [text.get_text() for text in base.get_yticklabels()] == ["0", "0.5", "1"]
    colors = {patch.get_facecolor() for patch in passing.patches if isinstance(patch, Rectangle)}
    assert len(colors) == 2  # nine cells of two values
    (bare, _) = axes_of(tmp_path, plot | {"cells": False}, two_arms(tmp_path))
    assert texts(bare) == []
    assert len(bare.patches) == 9


@pytest.mark.parametrize(
    ("names", "inches", "step"),
    [
        (["256", "1k", "4k", "8k", "16k"], 1.3, 1),  # the widest names have short neighbors
        (["256", "512", "768", "896", "960"], 1.3, 2),
        (["256", "512", "768", "896", "960"], 1.9, 1),
        (["1000000", "2000000", "3000000"], 0.5, 3),
        (["1000000"], 0.1, 1),
    ],
)
def test_names_of_columns_are_left_out_only_if_neighbors_touch(names: list[str], inches: float, step: int) -> None:
    assert step_across(names, inches, SMALL) == step


@pytest.mark.parametrize(
    ("options", "note"),
    [
        ({"percent": True}, "Means over 2 seeds. Numbers are percentages"),
        ({}, "Means over 2 seeds"),
        ({"cells": False, "limits": [0, 1]}, "Means over 2 seeds. Dark to light: 0 to 1"),
        ({"cells": False, "percent": True, "limits": [0, 1]}, "Means over 2 seeds. Dark to light: 0 to 100%"),
    ],
)
def test_the_note_of_a_heat_map_has_the_range_if_cells_have_no_numbers(
    options: dict[str, Any], note: str, tmp_path: Path
) -> None:
    plot = {"kind": "heat_map", **KEYS, "x": "length", "y": "depth", **options}
    (first, _) = axes_of(tmp_path, plot, two_arms(tmp_path))
    assert note in [text.get_text() for text in first.figure.findobj(Text)]


def test_text_is_drawn_verbatim(tmp_path: Path) -> None:
    """Dollars do not start formulas, and long lines continue below."""
    long = "word " * 30
    (axes,) = axes_of(tmp_path, {"kind": "text", "lines": ["$a|a.", "", "  " + long]}, [])
    drawn = texts(axes)
    assert drawn[:3] == ["$a|a.", "", "  " + " ".join(["word"] * 15)]
    assert all(line.startswith("    word") for line in drawn[3:])
    assert " ".join(drawn[2:]).split() == long.split()
    assert not any(text.get_parse_math() for text in axes.texts)
    assert {text.get_family()[0] for text in axes.texts} == {"monospace"}
    column = {"kind": "text", "measurement": "passkey", "column": "length", "rows": 3}
    (axes,) = axes_of(tmp_path, column, two_arms(tmp_path))
    assert texts(axes) == ["64"] * 3
    with pytest.raises(TableError, match="has no column 'prompt'"):
        axes_of(tmp_path, column | {"column": "prompt"}, two_arms(tmp_path))


def test_text_of_the_figures_own_table(tmp_path: Path) -> None:
    pieces = [("prompt", 2, "a b\n  d\n"), ("answer", 1, " c.")]
    rows = [
        {"place": place, "piece": piece, "tokens": tokens, "text": text}
        for place, (piece, tokens, text) in enumerate(pieces)
    ]
    synthetic.save(tmp_path / "sample-1.parquet", "sample", rows)
    task = synthetic.task([{"kind": "text", "measurement": "sample", "column": "text"}], [], tables=["sample-1"])
    (axes,) = draw_figure(task, tmp_path).axes
    assert texts(axes) == ["a b", "  d", " c."], "a piece may have several lines"
    (tmp_path / "sample-1.parquet").unlink()
    with pytest.raises(TableError, match="no such table"):
        draw_figure(task, tmp_path)


@pytest.mark.parametrize(
    ("plot", "says"),
    [
        ({"kind": "sweep", "of": AT}, "drawings.0: give either 'families' with their numbers 'at', or 'over'"),
        (
            {"kind": "sweep", "of": AT, "families": {"a": ["x", "y"]}, "at": [1, 2, 3]},
            "families.a: 2 arms at 3 numbers",
        ),
        ({"kind": "bars", "of": {"kind": "value_at", "measurement": "passkey"}}, "of: column: this key is required"),
        ({"kind": "text"}, "give either 'lines', or 'measurement' and 'column'"),
        ({"kind": "curves", "measurement": "passkey", "column": "correct"}, "x: this key is required"),
    ],
)
def test_incomplete_plots_are_rejected_in_one_line(plot: dict[str, Any], says: str) -> None:
    with pytest.raises(ConfigError) as error:
        synthetic.task([plot], [])
    assert says in str(error.value)
    assert "\n" not in str(error.value)


@pytest.mark.exhaustive
def test_all_plots_are_drawn_the_same_every_time(tmp_path: Path) -> None:
    drawings = [
        {"kind": "curves", **KEYS, "x": "length", "tokens": True},
        {"kind": "sweep", "of": AT, "over": "d_state"},
        {"kind": "bars", "of": AT},
        {"kind": "heat_map", **KEYS, "x": "length", "y": "depth"},
        {"kind": "text", "lines": ["a $ b"]},
        MAPS,
    ]
    task = synthetic.task(drawings, grid(tmp_path) + attention_series(tmp_path, "base", seeds=1))
    first, again = (draw(task, tmp_path, tmp_path / name)[0].read_bytes() for name in ("once", "twice"))
    assert first == again
    assert b"a $ b" in first
