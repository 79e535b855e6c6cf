"""Figures of grids: every curve, bar and cell has the number of its members' tables."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
from claims.synthetic import estimate
from figures import synthetic
from matplotlib.axes import Axes
from matplotlib.colors import to_hex

from ssm.base.errors import ConfigError, TableError
from ssm.base.tables import write_table
from ssm.claims.claim import ClaimSpec
from ssm.claims.panel_tables import PanelTables
from ssm.figures.draw import draw_figure
from ssm.figures.figure import FigureSpec, FigureTask
from ssm.figures.style import ARMS, CLASSES, ramp
from ssm.specs.base import Setting
from ssm.specs.measurements.length_class import LengthClass

EXCESS = {"kind": "value_at", "measurement": "length_class", "column": "excess"}
BASE = {"label": "Base", "training": "p"}
GRID = {"d_state": [8, 16, 32], "init": {"default": {}, "mimetic": {"a": 8}}}
ARMS_OF_GRID = {"base": BASE | {"grid": GRID}, "tbtt": {"label": "TBTT", "training": "p"}}
SEEDS = (1, 2, 3)
Axis = Mapping[str, Setting]
Height = Callable[[str, Axis, int], float]  # of (model, axes, seed)


def spec(drawings: list[dict[str, Any]], arms: dict[str, Any], models: tuple[str, ...], **more: Any) -> FigureSpec:
    kinds = [{"kind": "length_class"}, {"kind": "passkey", "lengths": [64]}, {"kind": "position_loss", "length": 64}]
    content = {"target": "mi_fig7", "paper": "mi", "title": "t", "caption": "c", "setting": "s", "data": "d"}
    content |= {"models": list(models), "seeds": list(SEEDS), "arms": arms, "drawings": drawings, "measurements": kinds}
    return FigureSpec.parse(content | more, "fig.yaml")


def task(
    drawings: list[dict[str, Any]],
    write: Callable[[Path, str, Axis, int], str],
    folder: Path,
    arms: dict[str, Any] = ARMS_OF_GRID,
    models: tuple[str, ...] = ("tiny",),
    **more: Any,
) -> FigureTask:
    """A figure whose tables are written by `write`(path, model, axes, seed), which returns their kind."""
    figure, series = spec(drawings, arms, models, **more), []
    for model in models:
        for number, (name, arm) in enumerate(figure.arms.items()):
            if arm is None:
                continue
            axes = arm.member.axes if arm.member else {}
            for seed in SEEDS:
                table = f"{model}_{number}_{seed}"
                kind = write(folder / f"{table}.parquet", model, axes, seed)
                one = synthetic.series(name, seed, panel=model, **{kind: table}) | {"label": arm.label, "axes": axes}
                series.append(one | ({"family": arm.member.family} if arm.member else {}))
    plan = {"figure": figure.content(), "scale": "smoke", "series": series}
    return FigureTask.parse(plan, "test")


def excess(height: Height) -> Callable[[Path, str, Axis, int], str]:
    def write(path: Path, model: str, axes: Axis, seed: int) -> str:
        value = height(model, axes, seed)
        synthetic.length_class(path, "none", value)
        if math.isinf(value):
            synthetic.diverge(path, "length_class")
        return "length_class"

    return write


def height(model: str, axes: Axis, seed: int) -> float:
    """A number that is different for every series."""
    mimetic = axes.get("init") == "mimetic"
    return float(axes.get("d_state", 1)) * (3 if mimetic else 1) + 0.1 * seed + (100 if model == "large" else 0)


def lines(axes: Axes) -> dict[str, Any]:
    return {str(line.get_label()): line for line in axes.lines if not str(line.get_label()).startswith("_")}


SWEEP = {"kind": "sweep", "of": EXCESS, "over": "d_state", "log_x": True, "reference": ["tbtt"]}


def test_a_sweep_draws_the_mean_over_seeds_at_every_number(tmp_path: Path) -> None:
    figure = draw_figure(task([SWEEP], excess(height), tmp_path, models=("tiny", "large")), tmp_path)
    assert [axes.get_title(loc="left") for axes in figure.axes] == ["tiny", "large"]
    for axes, model in zip(figure.axes, ("tiny", "large"), strict=True):
        found = lines(axes)
        assert list(found) == ["init default", "init mimetic", "TBTT"]
        for way in ("default", "mimetic"):
            x, y = found[f"init {way}"].get_data()
            assert list(x) == [8, 16, 32]
            expected = [np.mean([height(model, {"d_state": n, "init": way}, s) for s in SEEDS]) for n in (8, 16, 32)]
            np.testing.assert_allclose(y, expected)
        np.testing.assert_allclose(found["TBTT"].get_ydata(), np.mean([height(model, {}, s) for s in SEEDS]))
        assert axes.get_xlabel() == "N"
        default, mimetic, tbtt = (found[label].get_color() for label in found)
        assert (default, mimetic) == tuple(style.color for style in ramp(2))
        assert tbtt == ARMS["tbtt"].color


def test_dots_of_curves_with_equal_numbers_are_beside_each_other(tmp_path: Path) -> None:
    plot = SWEEP | {"reference": []}
    figure = draw_figure(task([plot], excess(lambda model, axes, seed: float(seed)), tmp_path), tmp_path)
    figure.draw_without_rendering()
    (axes,) = figure.axes
    dots = [line for line in axes.lines if line.get_marker() == "o" and line.get_linestyle() == "None"]
    shown = [tuple(place) for line in dots for place in line.get_transform().transform(line.get_xydata())]
    assert len({(round(x), round(y)) for x, y in shown}) == len(shown) == 2 * 3 * len(SEEDS)
    left, right = axes.bbox.x0, axes.bbox.x1
    assert all(left < x < right for x, _ in shown)


def test_all_models_in_one_panel_have_a_curve_each(tmp_path: Path) -> None:
    plot = SWEEP | {"reference": [], "where": {"init": "mimetic"}, "together": True, "title": "all"}
    arms = ARMS_OF_GRID | {"state_passing": {"label": "State Passing", "training": "p"}}
    (axes,) = draw_figure(task([plot], excess(height), tmp_path, arms, ("tiny", "large")), tmp_path).axes
    assert axes.get_title(loc="left") == "all"
    found = lines(axes)
    assert list(found) == ["tiny", "large"]
    assert len({line.get_color() for line in found.values()} | {ARMS["tbtt"].color, ARMS["state_passing"].color}) == 4
    for model, line in found.items():
        expected = [np.mean([height(model, {"d_state": n, "init": "mimetic"}, s) for s in SEEDS]) for n in (8, 16, 32)]
        np.testing.assert_allclose(line.get_ydata(), expected)


def test_values_and_families_have_different_colors(tmp_path: Path) -> None:
    """A plot of one family shows each value in one color, and a sweep shows each family in one color."""
    grid = {"grid": {"d_state": [8, 16, 32]}}
    arms = {"zero": BASE | grid, "previous": {"label": "Previous", "training": "q"} | grid}
    bars = {"kind": "bars", "of": EXCESS, "arms": ["zero"]}
    named = {f"of {n}": [f"{arm}[d_state={n}]" for arm in arms] for n in (8, 32)}
    plots = [bars, SWEEP | {"reference": []}, {"kind": "sweep", "of": EXCESS, "families": named, "at": [1, 2]}]
    first, second, third = draw_figure(task(plots, excess(height), tmp_path, arms), tmp_path).axes
    values = {to_hex(patch.get_facecolor()) for patch in first.patches}
    families = {line.get_color() for line in lines(second).values()}
    families_of_the_file = {line.get_color() for line in lines(third).values()}
    assert (len(values), len(families), len(families_of_the_file)) == (3, 2, 2)
    assert not (values | families_of_the_file) & families


def test_a_curve_has_the_labels_of_its_values(tmp_path: Path) -> None:
    labels = {"init": {"default": "usual start", "mimetic": ""}}
    arms = {"base": BASE | {"grid": GRID | {"conv": [True]}}}
    plot = SWEEP | {"reference": [], "where": {"conv": "on"}}
    (axes,) = draw_figure(task([plot], excess(height), tmp_path, arms, value_labels=labels), tmp_path).axes
    assert list(lines(axes)) == ["usual start", "Base"]


def test_the_words_of_a_claim_have_the_labels_of_its_values(tmp_path: Path) -> None:
    sweep = {"of": EXCESS, "over": "d_state", "family": "base", "where": {"init": "mimetic"}}
    quantity = {"kind": "slope", "sweep": sweep | {"against_where": {"init": "default"}}}
    claim = {"id": "it", "says": "s", "paper": "p", "quantity": quantity, "expected": {"above": 0.0}}

    def words(**figure: Any) -> str:
        made = task([{"kind": "state_norm"}], excess(height), tmp_path, claims=[claim], **figure)
        ((_, judged, _),) = made.verdicts
        return judged.quantity.words(PanelTables(made, "tiny", tmp_path)).partition("over ")[2]

    assert words() == "base, d_state 8, 16, 32, init mimetic; minus the same for base, d_state 8, 16, 32, init default"
    labels = {"init": {"default": "usual start", "mimetic": ""}, "d_state": "{} states"}
    sizes = "base, 8, 16, 32 states"
    assert words(value_labels=labels) == f"{sizes}; minus the same for {sizes}, usual start"
    some = {"d_state": {8: "few"}, "init": {"mimetic": "new start"}}
    assert words(value_labels=some).startswith("base, few, N = 16, N = 32, new start; minus")


def test_a_panel_of_all_models_has_no_references() -> None:
    with pytest.raises(ConfigError, match="leave out 'together' or 'reference'"):
        spec([SWEEP | {"together": True}], ARMS_OF_GRID, ("tiny", "large"))


def test_families_on_one_axis_have_separate_curves(tmp_path: Path) -> None:
    arms = {"base": BASE | {"grid": GRID}, "tbtt": {"label": "TBTT", "training": "q", "from": "base"}}
    plot = SWEEP | {"reference": [], "where": {"init": "mimetic"}}
    (axes,) = draw_figure(task([plot], excess(height), tmp_path, arms), tmp_path).axes
    assert list(lines(axes)) == ["Base", "TBTT"]
    assert all(list(found.get_xdata()) == [8, 16, 32] for found in lines(axes).values())


def test_a_reference_differs_in_color_from_curves(tmp_path: Path) -> None:
    arms = {"wide": BASE | {"grid": {"d_state": [8, 16]}}, "plain": {"label": "Plain", "training": "q"}}
    plot = SWEEP | {"reference": ["plain"]}
    (axes,) = draw_figure(task([plot], excess(height), tmp_path, arms), tmp_path).axes
    wide, plain = lines(axes).values()
    assert wide.get_color() != plain.get_color()


def test_a_missing_reference_has_no_line(tmp_path: Path) -> None:
    arms = {"wide": BASE | {"grid": {"d_state": [8, 16]}}, "tbtt": None}
    (axes,) = draw_figure(task([SWEEP], excess(height), tmp_path, arms), tmp_path).axes
    assert list(lines(axes)) == ["Base"]


def test_a_sweep_shows_the_numbers_that_a_claim_uses(tmp_path: Path) -> None:
    """The slope over the drawn points is the number of the claim."""
    sweep = {"of": EXCESS, "over": "d_state", "family": "base", "where": {"init": "mimetic"}}
    quantity = {"kind": "slope", "sweep": sweep | {"against_where": {"init": "default"}}}
    claim = {"id": "steeper", "says": "s", "paper": "p", "quantity": quantity, "expected": {"above": 0.0}}
    made = task([SWEEP], excess(height), tmp_path, claims=[claim])
    (found,) = draw_figure(made, tmp_path).axes
    slopes = [np.polyfit(*lines(found)[f"init {way}"].get_data(), 1)[0] for way in ("mimetic", "default")]
    ((name, judged, panel),) = made.verdicts
    assert (name, panel) == ("steeper", "tiny")
    noisy = task([SWEEP], excess(lambda m, a, s: height(m, a, s) * (1 + 0.01 * s)), tmp_path, claims=[claim])
    assert estimate(noisy, "tiny", judged.quantity, tmp_path).value == pytest.approx((slopes[0] - slopes[1]) * 1.02)
    members = {arm for arm in made.figure.arms if arm != "tbtt"}
    assert {arm for _, arm in judged.quantity.panel_arms("tiny", made.series)} == members


def test_bars_of_a_family(tmp_path: Path) -> None:
    bars = {"kind": "bars", "of": EXCESS, "arms": ["tbtt", "base"]}
    (axes,) = draw_figure(task([bars], excess(height), tmp_path), tmp_path).axes
    ways = [(n, way) for n in (8, 16, 32) for way in ("default", "mimetic")]
    assert [text.get_text() for text in axes.texts] == ["TBTT", *(f"Base, N = {n}, init {way}" for n, way in ways)]
    expected = [np.mean([height("tiny", {"d_state": n, "init": way}, seed) for seed in SEEDS]) for n, way in ways]
    np.testing.assert_allclose([patch.get_width() for patch in axes.patches][1:], expected)


def test_plots_of_single_families_name_and_color_values_alike(tmp_path: Path) -> None:
    grid = {"d_state": [8, 16, 32], "init": {"default": {}}}
    arms = {"copy": BASE | {"grid": grid}, "sort": BASE | {"label": "Sort", "grid": grid | {"d_state": [16, 32]}}}
    one, other = ({"kind": "bars", "of": EXCESS, "arms": [name], "title": name} for name in arms)
    first, second = draw_figure(task([one, other], excess(height), tmp_path, arms), tmp_path).axes
    assert [axes.get_title("left") for axes in (first, second)] == ["copy", "sort"]
    assert [text.get_text() for text in first.texts] == [f"N = {n}, init default" for n in (8, 16, 32)]
    colors = [[patch.get_facecolor() for patch in axes.patches] for axes in (first, second)]
    assert colors[0][1:] == colors[1]
    assert len(set(colors[0])) == 3


def cells(axes: Axes) -> dict[tuple[float, float], str]:
    return {text.get_position(): text.get_text() for text in axes.texts}


def test_a_heat_map_of_a_key_and_an_axis_has_a_row_per_member(tmp_path: Path) -> None:
    def write(path: Path, model: str, axes: Axis, seed: int) -> str:
        synthetic.position_loss(path, 4, lambda p: math.log(float(axes["context"]) * p), offsets=(0.0,))
        if axes["context"] == 64 and seed == 3:
            synthetic.diverge(path, "position_loss")
        return "position_loss"

    arms = {"base": BASE | {"grid": {"context": [64, 16, 32], "conv": [False, True]}}}
    plot = {"kind": "heat_map", "measurement": "position_loss", "column": "loss", "x": "position", "y": "context"}
    made = task([plot | {"exponential": True, "log_color": True}], write, tmp_path, arms)
    off, on = draw_figure(made, tmp_path).axes
    assert [axes.get_title(loc="left") for axes in (off, on)] == ["conv off", "conv on"]
    assert [text.get_text() for text in off.get_yticklabels()] == ["16", "32", "64"]
    expected = {(x + 0.5, y + 0.5): T * (x + 1) for x in range(4) for y, T in enumerate((16, 32))}
    found = {place: float(text) for place, text in cells(off).items()}
    assert found == {place: pytest.approx(value, rel=0.05) for place, value in expected.items()}  # two digits
    assert off.get_ylabel() == "T"
    color = {patch.get_xy(): patch.get_facecolor() for patch in off.patches if patch.get_fill()}
    np.testing.assert_allclose(color[1.03, 0.05], color[0.03, 1.05])  # 16 * 2 = 32 * 1
    assert color[0.03, 0.05] != color[1.03, 0.05]
    with pytest.raises(TableError, match="no column 'contxt'"):
        draw_figure(task([plot | {"y": "contxt"}], write, tmp_path, arms), tmp_path)


def test_a_heat_map_has_the_class_of_every_cell(tmp_path: Path) -> None:
    """Training T by reading length. Different classes of seeds are not decided. Within T there is no class."""

    def write(path: Path, model: str, axes: Axis, seed: int) -> str:
        T, lengths = int(axes["T"]), [16, 32, 64]
        kinds = [
            None if length <= T else "weak" if length == 32 else "none" if seed > 1 or T == 32 else "strong"
            for length in lengths
        ]
        rows = dict.fromkeys(LengthClass.table.columns, [None] * 3) | {"class": kinds, "length": lengths}
        rows |= {"loss": [math.log(T + length) for length in lengths], "context": [T] * 3, "sequences": [4] * 3}
        write_table(pl.DataFrame(rows, schema=LengthClass.table.columns), LengthClass.table, path, {})
        return "length_class"

    arms = {"base": BASE | {"grid": {"T": {16: {"context": 16}, 32: {"context": 32}}}}}
    plot = {"kind": "heat_map", "measurement": "length_class", "column": "loss", "x": "length", "y": "T"}
    made = task([plot | {"exponential": True, "classes": True}], write, tmp_path, arms)
    figure = draw_figure(made, tmp_path)
    (axes,) = figure.axes
    assert {float(text) for text in cells(axes).values()} == {32, 48, 64, 80, 96}
    symbols = {tuple(line.get_xydata()[0]): line.get_marker() for line in axes.lines if len(line.get_xdata())}
    expected = {(1.5, 0.7): "weak", (2.5, 0.7): "not decided", (2.5, 1.7): "none"}
    assert symbols == {place: CLASSES[kind].marker for place, kind in expected.items()}
    names = [text.get_text() for text in figure.legends[0].get_texts()]
    assert names == ["weak extension", "no extension", "not decided"]


def test_a_heat_map_of_two_axes_has_a_cell_per_member(tmp_path: Path) -> None:
    plot = {"kind": "heat_map", "measurement": "length_class", "column": "excess", "x": "d_state", "y": "init"}
    (axes,) = draw_figure(task([plot | {"arms": ["base"]}], excess(height), tmp_path), tmp_path).axes
    assert [text.get_text() for text in axes.get_yticklabels()] == ["default", "mimetic"]
    assert [text.get_text() for text in axes.get_xticklabels()] == ["8", "16", "32"]
    assert cells(axes)[2.5, 1.5] == "96"  # 3 * 32 + 0.2
    assert axes.get_title(loc="left") == "Base"


def test_small_heat_maps_are_four_per_row(tmp_path: Path) -> None:
    """They share the vertical axis, and titles may have several lines. Longer numbers need fewer columns."""
    grid = GRID | {"conv": [False, True], "bias": [False, True]}
    arms = {"base": BASE | {"grid": grid}}
    plot = {"kind": "heat_map", "measurement": "length_class", "column": "excess", "x": "d_state", "y": "init"}
    drawn = draw_figure(task([plot], excess(height), tmp_path, arms), tmp_path).axes
    assert [axes.get_title(loc="left") for axes in drawn] == [
        f"conv {conv},\nbias {bias}" for conv in ("off", "on") for bias in ("off", "on")
    ]
    assert [axes.get_subplotspec().colspan.start for axes in drawn] == [0, 1, 2, 3]
    assert [axes.get_ylabel() for axes in drawn] == ["init", "", "", ""]
    assert [bool(axes.yaxis.get_tick_params()["labelleft"]) for axes in drawn] == [True, False, False, False]
    assert all(len(cells(axes)) == 6 for axes in drawn)
    wider = {"base": BASE | {"grid": grid | {"d_state": [8, 16, 32, 64, 128, 256]}}}
    wide = draw_figure(task([plot | {"percent": True}], excess(height), tmp_path, wider), tmp_path).axes
    assert [axes.get_subplotspec().colspan.start for axes in wide] == [0, 1, 0, 1]
    assert [axes.get_ylabel() for axes in wide] == ["init", "", "init", ""]
    fewer = BASE | {"grid": grid | {"d_state": [8, 16], "bias": [False]}}
    arms = {"base": fewer, "other": fewer | {"label": "Other"}}
    both = draw_figure(task([plot], excess(height), tmp_path, arms), tmp_path).axes
    assert both[0].get_title(loc="left").startswith("Base,")


@pytest.mark.parametrize(
    ("plot", "says"),
    [
        (
            SWEEP | {"over": "d_stat"},
            "drawings.sweep.over: no axis 'd_stat' in any grid; did you mean 'd_state'?",
        ),
        (SWEEP | {"over": "init"}, "drawings.sweep.over: not all values of 'init' are numbers; use the plot 'bars'"),
        (SWEEP | {"reference": ["tbt"]}, "drawings.sweep.reference: unknown arm 'tbt'; did you mean 'tbtt'?"),
        (
            {"kind": "bars", "of": EXCESS, "arms": ["bse"]},
            "drawings.bars.arms: unknown arm 'bse'; did you mean 'base'?",
        ),
        (
            {"kind": "scatter", "of": EXCESS, "by": EXCESS, "arm": "tbt"},
            "drawings.scatter.arm: unknown arm 'tbt'; did you mean 'tbtt'?",
        ),
        (
            SWEEP | {"of": EXCESS | {"measurement": "length"}},
            "drawings.sweep.of.measurement: no measurement 'length' in this figure; did you mean 'len",
        ),
        (
            {"kind": "heat_map", "measurement": "passkey", "column": "correct", "x": "depth", "y": "depth"},
            "drawings.0: x and y are both 'depth'",
        ),
    ],
)
def test_impossible_plots_are_rejected_when_the_file_is_read(plot: dict[str, Any], says: str) -> None:
    with pytest.raises(ConfigError) as error:
        spec([plot], ARMS_OF_GRID, ("tiny",))
    assert str(error.value).startswith(f"fig.yaml: {says}")


@pytest.mark.parametrize(
    ("sweep", "says"),
    [
        ({"over": "d_stat"}, "sweep.over: no axis 'd_stat' in any grid; did you mean 'd_state'?"),
        (
            {"over": "d_state", "family": "bse"},
            "sweep.family: no arm with a grid is called 'bse'; did you mean 'base'?",
        ),
        ({"over": "d_state", "where": {"int": "x"}}, "sweep.where: no axis 'int' in any grid; did you mean 'init'?"),
        (
            {"arms": ["base", "tbtt"], "at": [1, 2]},
            "sweep: 'base' is a family of 6 arms; name one, or sweep over an axis",
        ),
    ],
)
def test_unknown_axes_of_a_sweep_are_rejected_when_the_file_is_read(sweep: dict[str, Any], says: str) -> None:
    claim = {"id": "it", "says": "s", "paper": "p", "quantity": {"kind": "slope", "sweep": {"of": EXCESS} | sweep}}
    ClaimSpec.parse(claim | {"expected": {"above": 0}}, "alone")
    with pytest.raises(ConfigError) as error:
        spec([{"kind": "state_norm"}], ARMS_OF_GRID, ("tiny",), claims=[claim | {"expected": {"above": 0}}])
    assert str(error.value).startswith(f"fig.yaml: claims.it.quantity.{says}")


def test_a_sweep_selects_one_family_and_compares_values_as_text(tmp_path: Path) -> None:
    both = {"base": BASE | {"grid": {"d_state": [8, 16], "conv": [False, True]}}}
    both["after"] = {"label": "A", "training": "q", "from": "base"}
    quantity = {"kind": "slope", "sweep": {"of": EXCESS, "over": "d_state", "where": {"conv": "on"}, "family": "after"}}
    claim = {"id": "it", "says": "s", "paper": "p", "quantity": quantity, "expected": {"above": 0.0}}
    made = task([{"kind": "state_norm"}], excess(height), tmp_path, both, claims=[claim])
    ((_, judged, _),) = made.verdicts
    assert [arm for _, arm in judged.quantity.panel_arms("tiny", made.series)] == [
        "after[d_state=8,conv=on]",
        "after[d_state=16,conv=on]",
    ]
