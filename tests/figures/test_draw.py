"""Figures: the contents of their artists, and the files that are written."""

from __future__ import annotations

import argparse
import json
import math
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
from figures import synthetic
from figures.synthetic import line
from matplotlib.axes import Axes
from matplotlib.colors import to_hex
from matplotlib.figure import Figure
from matplotlib.font_manager import FontProperties
from matplotlib.mathtext import MathTextParser
from matplotlib.text import Text

from ssm.base.errors import ConfigError, TableError
from ssm.cli import plot
from ssm.figures.colors import GRID, INK
from ssm.figures.draw import compose, draw, draw_figure
from ssm.figures.figure import FigureTask
from ssm.figures.plot import PLOTS
from ssm.figures.plots.taxonomy_table import HEADS
from ssm.figures.rows import UNBROKEN, Row, wrapped
from ssm.figures.style import ARMS, CLASSES, HUES, SMALL, WIDTH
from ssm.specs.mixers import SPECS
from ssm.specs.mixers.base import MixerSpecBase

ARM_NAMES = ("base", "control", "state_passing")
POSITION = {"kind": "position_curves"}


def position_task(folder: Path, arms: tuple[str, ...] = ARM_NAMES, seeds: int = 2, **figure: Any) -> FigureTask:
    """Arm i with seed s has the loss 1 + i + s everywhere; the mean over its sequences adds 0.05."""
    series = []
    for i, arm in enumerate(arms):
        for seed in range(seeds):
            synthetic.position_loss(folder / f"{arm}{seed}.parquet", 256, lambda p, v=1.0 + i + seed: v)
            series.append(synthetic.series(arm, seed, position_loss=f"{arm}{seed}"))
    return synthetic.task([POSITION], series, **figure)


def texts(figure: Figure) -> list[str]:
    return [text.get_text() for text in figure.findobj(Text)]


def test_curves_have_the_numbers_of_the_tables(tmp_path: Path) -> None:
    (axes,) = draw_figure(position_task(tmp_path), tmp_path).axes
    for i, label in enumerate(("base", "control", "state passing")):
        drawn = line(axes, label)
        np.testing.assert_allclose(drawn.get_ydata(), math.exp(1.55 + i))
        assert drawn.get_xdata()[-1] == 240
    assert axes.get_xscale() == axes.get_yscale() == "log"
    assert axes.get_title(loc="left") == "tiny"
    titled = position_task(tmp_path).model_copy(update={"titles": {"tiny": "A small model"}})
    assert draw_figure(titled, tmp_path).axes[0].get_title(loc="left") == "A small model"
    assert axes.get_xlabel() == "position (tokens)"
    assert axes.get_ylabel() == "perplexity per token"
    labels = [text.get_text() for text in axes.get_xticklabels()]
    assert labels == ["4", "8", "16", "32", "64", "128", "256"]
    training = next(each for each in axes.lines if list(each.get_xdata()) == [32, 32])
    assert to_hex(training.get_color()) == INK
    assert "T = 32" in [text.get_text() for text in axes.texts]


def test_the_band_is_the_range_over_seeds(tmp_path: Path) -> None:
    (axes,) = draw_figure(position_task(tmp_path, ("base",)), tmp_path).axes
    (band,) = axes.collections
    heights = band.get_paths()[0].vertices[:, 1]
    assert (heights.min(), heights.max()) == pytest.approx((math.exp(1.05), math.exp(2.05)))


def test_the_ratio_is_below_on_the_same_axis_with_a_line_at_one(tmp_path: Path) -> None:
    synthetic.position_loss(tmp_path / "p.parquet", 128, lambda p: 2.0)
    synthetic.restart_loss(tmp_path / "r.parquet", 32, 128, lambda p: 1.5)
    series = [synthetic.series("base", 0, position_loss="p", restart_loss="r")]
    task = synthetic.task([POSITION | {"ratio": True, "restarted": "base"}], series)
    above, below = draw_figure(task, tmp_path).axes
    ratio = line(below, "base")
    assert ratio.get_xdata().tolist() == [32, 64, 128]
    np.testing.assert_allclose(ratio.get_ydata(), math.exp(0.5))
    assert any(list(each.get_ydata()) == [1.0, 1.0] for each in below.lines)
    assert above.get_xlim() == below.get_xlim()


def test_a_perplexity_is_divided_by_that_of_another_arm_seed_by_seed(tmp_path: Path) -> None:
    task = position_task(tmp_path)
    task = task.model_copy(update={"figure": task.figure.model_copy(update={"drawings": ()})})
    relative = POSITION | {"relative_to": "control", "arms": ["base", "control"]}
    series = [one.content() for one in task.series]
    (axes,) = draw_figure(synthetic.task([relative], series), tmp_path).axes
    np.testing.assert_allclose(line(axes, "base").get_ydata(), math.exp(-1.0))
    np.testing.assert_allclose(line(axes, "control").get_ydata(), 1.0)
    heights = axes.collections[0].get_paths()[0].vertices[:, 1]
    np.testing.assert_allclose(heights, math.exp(-1.0))  # seeds differ by the same factor in both arms
    assert axes.get_ylabel() == "perplexity\nrelative to control"
    assert axes.get_xlim()[0] == pytest.approx(16, rel=0.1)  # half of T = 32
    assert not any(str(each.get_label()) == "state passing" for each in axes.lines)


def test_a_value_stays_in_the_line_of_its_name() -> None:
    assert wrapped("relative to Previous, T = 64", room=24, letter=1).splitlines() == [
        "relative to Previous,",
        "T = 64",
    ]


def test_without_the_other_arm_only_the_paired_ratio_is_drawn(tmp_path: Path) -> None:
    """A dry run has a part of the arms."""
    synthetic.position_loss(tmp_path / "p.parquet", 64, lambda p: 1.0)
    synthetic.restart_loss(tmp_path / "r.parquet", 32, 64, lambda p: 1.0)
    series = [synthetic.series("base", 0, position_loss="p", restart_loss="r")]
    task = synthetic.task([POSITION | {"ratio": True, "relative_to": "control"}], series)
    (below,) = draw_figure(task, tmp_path).axes
    assert below.get_ylabel().startswith("perplexity ratio")


def test_all_models_in_one_panel(tmp_path: Path) -> None:
    series = []
    for i, model in enumerate(("tiny", "small")):
        synthetic.position_loss(tmp_path / f"{model}.parquet", 64, lambda p, v=1.0 + i: v)
        synthetic.restart_loss(tmp_path / f"r{model}.parquet", 32, 64, lambda p: 1.0)
        series.append(synthetic.series("base", 0, panel=model, position_loss=model, restart_loss=f"r{model}"))
    plot = POSITION | {"together": True, "ratio": True}
    above, below = draw_figure(synthetic.task([plot], series), tmp_path).axes
    np.testing.assert_allclose(line(above, "small").get_ydata(), math.exp(2.05))
    np.testing.assert_allclose(line(below, "small").get_ydata(), math.exp(1.0))
    assert line(above, "tiny").get_color() != line(above, "small").get_color()
    assert above.get_xlabel() == "", "the axis below has the label"


def test_models_are_side_by_side_and_share_the_perplexity_axis(tmp_path: Path) -> None:
    series = []
    for i, model in enumerate(("tiny", "small", "large")):
        synthetic.position_loss(tmp_path / f"{model}.parquet", 64, lambda p, v=1.0 + i: v)
        series.append(synthetic.series("base", 0, panel=model, position_loss=model))
    figure = draw_figure(synthetic.task([POSITION], series), tmp_path)
    assert [axes.get_title(loc="left") for axes in figure.axes] == ["tiny", "small", "large"]
    assert len({axes.get_ylim() for axes in figure.axes}) == 1
    assert [bool(axes.get_ylabel()) for axes in figure.axes] == [True, False, False]
    assert sum(text == "base" for text in texts(figure)) == 1  # one legend for all


def test_arms_that_diverge_or_break_off_are_marked(tmp_path: Path) -> None:
    synthetic.position_loss(tmp_path / "a.parquet", 256, lambda p: math.nan)
    synthetic.position_loss(tmp_path / "b.parquet", 256, lambda p: 2.0 if p <= 64 else math.inf)
    series = [synthetic.series("base", 0, position_loss="a"), synthetic.series("control", 0, position_loss="b")]
    figure = draw_figure(synthetic.task([POSITION], series), tmp_path)
    (axes,) = figure.axes
    assert not np.isfinite(line(axes, "base (diverged)").get_ydata()).any()
    assert "base (diverged)" in texts(figure)
    drawn = line(axes, "control")
    assert drawn.get_xdata()[np.isfinite(drawn.get_ydata())].max() == 60
    assert any(each.get_marker() == "x" and each.get_xdata() == [60] for each in axes.lines)


def test_a_legend_names_an_arm_once_with_all_panels_in_which_it_diverged(tmp_path: Path) -> None:
    series = []
    for model, value in {"tiny": math.nan, "small": 1.0, "large": math.nan}.items():
        synthetic.position_loss(tmp_path / f"{model}.parquet", 64, lambda p, v=value: v)
        series.append(synthetic.series("base", 0, panel=model, position_loss=model))
    figure = draw_figure(synthetic.task([POSITION], series), tmp_path)
    assert [text for text in texts(figure) if "base" in text] == ["base (diverged: tiny, large)"]


def test_heads_are_chosen_in_one_arm_and_drawn_for_one_seed(tmp_path: Path) -> None:
    for name, growth in (("base", 4.0), ("passing", 1.0)):

        def std(layer: int, head: int, p: float, growth: float = growth) -> float:
            return 1.0 + (growth * math.log2(p / 32) if (layer, head) == (1, 0) and p > 32 else 0.0)

        synthetic.state_statistics(tmp_path / f"{name}.parquet", 128, lambda p: 1.0, std)
    series = [
        synthetic.series("base", 7, state_statistics="base"),
        synthetic.series("state_passing", 7, state_statistics="passing"),
        synthetic.series("state_passing", 8, state_statistics="passing"),
    ]
    task = synthetic.task([{"kind": "head_std", "heads": 1, "chosen_by": "base"}], series)
    figure = draw_figure(task, tmp_path)
    (axes,) = figure.axes
    assert axes.get_title(loc="left") == "layer 1, head 0"
    np.testing.assert_allclose(line(axes, "base").get_ydata(), [1, 1, 1, 1, 5, 9])
    np.testing.assert_allclose(line(axes, "state passing").get_ydata(), [1, 1, 1, 1, 2, 3])
    assert any("seed 7" in text for text in texts(figure))


def test_an_arm_without_the_chosen_head_has_no_line(tmp_path: Path) -> None:
    """Arms may differ in their number of heads, such as those of a grid over d_model."""
    synthetic.state_statistics(tmp_path / "wide.parquet", 128, lambda p: 1.0)
    narrow = pl.read_parquet(tmp_path / "wide.parquet").filter(pl.col("head") < 1)
    synthetic.save(tmp_path / "narrow.parquet", "state_statistics", narrow.to_dicts())
    series = [
        synthetic.series("base", 7, state_statistics="wide"),
        synthetic.series("state_passing", 7, state_statistics="narrow"),
    ]
    task = synthetic.task([{"kind": "head_std", "heads": 4, "chosen_by": "base"}], series)
    lines = {
        axes.get_title(loc="left"): {str(each.get_label()) for each in axes.lines} & {"base", "state passing"}
        for axes in draw_figure(task, tmp_path).axes
    }
    both = {"base", "state passing"}
    assert lines == {
        "layer 0, head 0": both,
        "layer 0, head 1": {"base"},
        "layer 1, head 0": both,
        "layer 1, head 1": {"base"},
    }


def test_remembrance_has_a_panel_per_distance_and_marks_the_last_context(tmp_path: Path) -> None:
    names = ("total_variation", "jensen_shannon")
    synthetic.remembrance(tmp_path / "e.parquet", 128, lambda t: 0.5, names)
    series = [synthetic.series("base", 0, effective_remembrance="e")]
    figure = draw_figure(synthetic.task([{"kind": "remembrance", "distances": names}], series), tmp_path)
    assert [axes.get_title(loc="left") for axes in figure.axes] == ["total variation", "Jensen-Shannon"]
    np.testing.assert_allclose(line(figure.axes[1], "base").get_ydata(), 0.4)
    assert any(list(each.get_xdata()) == [96, 96] for each in figure.axes[0].lines)


def test_state_norm_is_drawn_to_its_end(tmp_path: Path) -> None:
    synthetic.state_statistics(tmp_path / "s.parquet", 256, norm=lambda p: 3.0 * p)
    task = synthetic.task([{"kind": "state_norm"}], [synthetic.series("base", 0, state_statistics="s")])
    (axes,) = draw_figure(task, tmp_path).axes
    assert line(axes, "base").get_ydata()[-1] == pytest.approx(768)
    assert axes.get_xlim()[1] >= 256


def test_a_diverged_run_has_a_label_and_no_line(tmp_path: Path) -> None:
    task = position_task(tmp_path, seeds=2)
    synthetic.diverge(tmp_path / "control1.parquet", "position_loss")  # one of two seeds
    figure = draw_figure(task, tmp_path)
    (axes,) = figure.axes
    assert np.isnan(line(axes, "control (diverged)").get_ydata()).all()
    assert "control (diverged)" in texts(figure)
    for label in ("base", "state passing"):
        assert np.isfinite(line(axes, label).get_ydata()).all()


def test_the_class_of_a_diverged_run_is_no_extension(tmp_path: Path) -> None:
    synthetic.length_class(tmp_path / "c.parquet", "strong", -0.1)
    synthetic.position_loss(tmp_path / "p.parquet", 256, lambda p: 1.0)
    synthetic.diverge(tmp_path / "c.parquet", "length_class")
    synthetic.diverge(tmp_path / "p.parquet", "position_loss")
    series = [synthetic.series("base", 0, position_loss="p", length_class="c")]
    curves, excesses = draw_figure(synthetic.task([{"kind": "length_classes"}], series), tmp_path).axes
    assert "no extension (1)" in [str(each.get_label()) for each in curves.lines]
    assert np.isnan(line(curves, "_tiny: base").get_ydata()).all()
    assert any(each.get_marker() == ">" for each in excesses.lines)


def test_heads_of_a_diverged_run_are_empty(tmp_path: Path) -> None:
    synthetic.state_statistics(tmp_path / "s.parquet", 64, norm=lambda p: 1.0)
    synthetic.diverge(tmp_path / "s.parquet", "state_statistics")
    task = synthetic.task(
        [{"kind": "head_std", "chosen_by": "base", "heads": 2}], [synthetic.series("base", 0, state_statistics="s")]
    )
    one, other = draw_figure(task, tmp_path).axes
    for axes in (one, other):
        assert "no finite value" in [text.get_text() for text in axes.texts]


def test_the_arm_that_chooses_the_heads_has_to_exist() -> None:
    series = [synthetic.series("base", 0, state_statistics="s")]
    with pytest.raises(ConfigError, match="chosen_by: unknown arm 'bse'; did you mean 'base'"):
        synthetic.task([{"kind": "head_std", "chosen_by": "bse"}], series, collect=[], arms={"base": None})


def test_classes_color_the_curves_and_a_shared_run_counts_once(tmp_path: Path) -> None:
    series = []
    classes = ("strong", -0.1), ("none", 2.0), ("not decided", None), ("not decided", 0.2)
    for seed, (kind, excess) in enumerate(classes):
        synthetic.length_class(tmp_path / f"c{seed}.parquet", kind, excess)
        synthetic.position_loss(tmp_path / f"p{seed}.parquet", 256, lambda p, v=seed: 1 + v * max(0, math.log2(p / 32)))
        series.append(synthetic.series(f"t{seed}", seed, position_loss=f"p{seed}", length_class=f"c{seed}"))
    task = synthetic.task([{"kind": "length_classes"}], [*series, series[0] | {"arm": "shared"}])
    curves, excesses = draw_figure(task, tmp_path).axes
    labels = [str(each.get_label()) for each in curves.lines]
    assert {"strong extension (1)", "no extension (1)", "not decided (2)"} <= set(labels)
    rising = line(curves, "_tiny: t1")
    assert to_hex(rising.get_color()) == CLASSES["none"].color
    assert rising.get_ydata()[-1] == pytest.approx(3.0)  # loss at 8T minus loss at T
    assert rising.get_xdata()[-1] == pytest.approx(7.5)
    assert [text.get_text() for text in excesses.texts] == [f"tiny: t{i}" for i in range(4)]
    symbols = [each for each in excesses.lines if each.get_marker() in "osXD"]
    assert symbols[-1].get_markerfacecolor() == "none", "as in the legend"
    points = [(each.get_xdata()[0], each.get_ydata()[0]) for each in symbols]
    assert points == [(-0.1, 0), (2.0, 1), (0.2, 3)], "one was not measured beyond T"
    assert not any(each.get_marker() == ">" for each in excesses.lines), "none diverged"


def test_configurations_are_printed(tmp_path: Path) -> None:
    rows = [
        {"model": "tiny"},
        {"model": "big", "parameters": 371_000_000, "published_parameters": 370_000_000},
        {"model": "biggest", "parameters": 1_343_700_000, "published_parameters": 1_300_000_000},
    ]
    synthetic.model_size(tmp_path / "model-size-1.parquet", rows)
    task = synthetic.task([{"kind": "configuration_table"}], [], target="lg_tab2", tables=["model-size-1"])
    task = task.model_copy(update={"titles": {"big": "Mamba, 371M parameters"}})
    printed = texts(draw_figure(task, tmp_path))
    assert {"tiny", "Mamba, 371M parameters", "1e-3", "4 × 16 × 32"} <= set(printed)
    assert {"371M", "370M", "1.34B", "1.3B", "123k", "–"} <= set(printed)


def test_systems_are_printed(tmp_path: Path) -> None:
    nothing = dict.fromkeys(("selective", "linear", "identity"))
    grows = {"model": "attention", "system": "Attention", "state_numbers_late": 640, **nothing}
    linear = {"model": "la", "system": "Linear attention", "identity": True}
    gru = {"model": "gru", "system": "GRU", "selective": True, "linear": False}
    synthetic.taxonomy(tmp_path / "taxonomy-1.parquet", [{}, grows, gru, linear])
    synthetic.model_size(tmp_path / "model-size-1.parquet", [{}])  # another kind, which this plot does not read
    drawn = synthetic.task([{"kind": "taxonomy_table"}], [], target="bn_appB", tables=["taxonomy-1", "model-size-1"])
    printed = texts(draw_figure(drawn, tmp_path))
    assert [text for text in printed if text.startswith("not selective")] == ["not selective", "not selective,"]
    assert printed.count("$A_t=I$") == 1
    assert {"S5", "Attention", "GRU", "state grows", "selective, not", "linear", "by channel,"} <= set(printed)
    assert {"$x_t = x_{t-1} + B u_t$,   $y_t = x_t$", "1 × 32 × 2"} <= set(printed)


@pytest.mark.parametrize("mixer", SPECS.values(), ids=lambda mixer: mixer.taxonomy.system)
def test_the_lines_of_a_recurrence_fit_their_column(mixer: type[MixerSpecBase]) -> None:
    (_, left, _), (_, right, _) = HEADS[1:3]
    room = 0.94 * (right - left) * WIDTH * 72  # points, minus a gap
    for formula in mixer.taxonomy.recurrence:
        assert MathTextParser("path").parse(formula, dpi=72, prop=FontProperties(size=SMALL)).width <= room, formula


def test_costs_are_drawn_by_model_in_their_units(tmp_path: Path) -> None:
    synthetic.cost(tmp_path / "cost-1.parquet", {"attention": 2.0, "s5": 1.0})
    task = synthetic.task([{"kind": "cost_curves"}], [], tables=["cost-1"])
    panels = draw_figure(task.model_copy(update={"titles": {"attention": "Transformer"}}), tmp_path).axes
    assert [axes.get_ylabel() for axes in panels] == ["ms", "MB", "ms", "kB"]
    assert line(panels[0], "Transformer").get_ydata() == pytest.approx([1e3 * t**2 for t in (8, 16, 32)])
    assert line(panels[3], "s5").get_ydata() == pytest.approx([1e-3 * t for t in (8, 16, 32)])
    assert line(panels[3], "s5").get_color() == HUES[1], "models have no order"


PASSKEY: dict[str, Any] = {"measurement": "passkey", "x": "length", "column": "correct"}
OF = {"of": {"kind": "value_at", "measurement": "passkey", "column": "correct"}}
NEEDED: dict[str, dict[str, Any]] = {  # required keys of plots
    "head_std": {"chosen_by": "base"},
    "curves": PASSKEY,
    "bars": OF,
    "ranking": OF,
    "scatter": OF | {"arm": "base", "by": {"kind": "perplexity_at", "times_context": 1}},
    "sweep": OF | {"over": "d_state"},
    "heat_map": PASSKEY | {"y": "depth"},
    "table": OF,
    "text": {"measurement": "passkey", "column": "correct"},
}


def test_every_plot_is_drawn_in_a_test() -> None:
    tests = "".join(path.read_text() for path in sorted(Path(__file__).parent.glob("test_*.py")))
    for kind in PLOTS:
        assert f'"kind": "{kind}"' in tests, kind


@pytest.mark.parametrize("kind", sorted(PLOTS))
def test_a_figure_without_series_says_so(kind: str, tmp_path: Path) -> None:
    plot = {"kind": kind} | NEEDED.get(kind, {})
    assert any("no arm at this scale" in text for text in texts(draw_figure(synthetic.task([plot], []), tmp_path)))


def test_an_arm_has_the_same_style_in_every_figure(tmp_path: Path) -> None:
    arms = ("t16", "state_passing", "t32", "base", "standard_base")
    (axes,) = draw_figure(position_task(tmp_path, arms, seeds=1), tmp_path).axes
    for arm in ("state_passing", "base"):
        drawn = line(axes, arm.replace("_", " "))
        assert (to_hex(drawn.get_color()), drawn.get_marker()) == (ARMS[arm].color, ARMS[arm].marker)
    assert line(axes, "standard base").get_markerfacecolor() == "none"


def test_a_legend_names_arms_in_the_order_of_their_first_panel() -> None:
    names = [f"an arm with a long name, {letter}" for letter in "abc"]

    def of(*drawn: str) -> Row:
        return Row(1.5, [lambda axes, _: [axes.plot([0, 1], [0, 1], label=name) for name in drawn]], 1)

    (legend,) = compose([of(*names), of(names[1])]).legends
    assert [text.get_text() for text in legend.get_texts()] == names


def test_a_legend_has_the_marker_of_the_panel_where_it_is_largest() -> None:
    """Small panels draw lines without markers. Their line style stays."""

    def of(style: str, size: float) -> Row:
        return Row(
            1.5,
            [lambda axes, _: axes.plot([0, 1], [0, 1], linestyle=style, marker="v", label="base", markersize=size)],
            2,
        )

    (legend,) = compose([of("-", 0.0), of("none", 5.0)]).legends
    (entry,) = legend.get_lines()
    assert (entry.get_linestyle(), entry.get_marker(), entry.get_markersize()) == ("-", "v", 5.0)


def test_the_svg_is_the_same_bytes_every_time(tmp_path: Path) -> None:
    task = position_task(tmp_path, title="a < b")
    paths = draw(task, tmp_path, tmp_path / "once")
    assert [path.name for path in paths] == ["lg_fig5.svg", "lg_fig5.png", "lg_fig5.pdf"]
    first = paths[0].read_bytes()
    again = draw(task, tmp_path, tmp_path / "twice")
    assert again[0].read_bytes() == first
    assert again[2].read_bytes() == paths[2].read_bytes()

    svg = first.decode()
    assert INK in svg
    assert GRID in svg
    assert ">position (tokens)<" in svg  # real text
    assert "<dc:date>" not in svg
    assert "<title>a &lt; b</title>" in svg
    assert "#000000" not in svg
    assert "#ffffff" not in svg
    assert sorted(path.name for path in (tmp_path / "once").iterdir()) == ["lg_fig5.pdf", "lg_fig5.png", "lg_fig5.svg"]


def test_a_failing_figure_keeps_the_existing_files(tmp_path: Path) -> None:
    task = position_task(tmp_path, seeds=1)
    before = [path.read_bytes() for path in draw(task, tmp_path, tmp_path / "out")]
    (tmp_path / "base0.parquet").unlink()
    with pytest.raises(TableError, match=r"base0\.parquet"):
        draw(task, tmp_path, tmp_path / "out")
    assert [path.read_bytes() for path in sorted((tmp_path / "out").iterdir())] == [before[2], before[1], before[0]]


def test_ssm_plot_draws_a_planned_figure(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    spec = tmp_path / "lg_fig5.json"
    spec.write_text(json.dumps(position_task(tmp_path, ("base",), seeds=1).content()))
    parser = argparse.ArgumentParser()
    plot.add_arguments(parser)
    status = plot.run(parser.parse_args([str(spec), "--tables", str(tmp_path), "--out", str(tmp_path / "out")]))
    assert status == 0
    written = capsys.readouterr().out.split()
    assert [Path(path).suffix for path in written] == [".svg", ".png", ".pdf"]
    assert all(Path(path).stat().st_size > 1000 for path in written)


def test_narrow_panels_use_the_width_below_wide_panels_with_long_labels() -> None:
    def wide(axes: Axes, columns: int) -> None:
        axes.set_ylabel("a label\nof two lines")
        axes.set_yticks([0.0, 1.0], ["0.0000", "1.0000"])

    def narrow(axes: Axes, columns: int) -> None:
        axes.set_yticks([0.0, 1.0])

    figure = compose([Row(1.5, [wide] * 2, 2), Row(1.5, [narrow] * 6, 6), Row(1.5, [narrow] * 5, 6)])
    figure.draw_without_rendering()
    places = [axes.get_position() for axes in figure.axes]
    assert sum(place.width for place in places[2:8]) > 0.6
    for above, below in zip(places[2:7], places[8:], strict=True):  # a row that is not full is aligned
        assert (below.x0, below.width) == pytest.approx((above.x0, above.width))
    assert places[8].height == pytest.approx(places[2].height, rel=0.1)


def test_rows_of_three_and_of_four_panels_have_room() -> None:
    """Twelve common columns would be narrower than the labels."""

    def panel(axes: Axes, columns: int) -> None:
        axes.set_ylabel("a label\nof two lines")
        axes.set_yticks([0.0, 1.0], ["0.00", "1.00"])
        axes.set_xticks([0.0, 1.0], ["500", "1.5k"])

    figure = compose([Row(1.5, [panel] * 3, 3), Row(1.5, [panel] * 4, 4)])
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        figure.draw_without_rendering()


def test_a_heading_and_a_label_are_broken_once() -> None:
    """The height of the legend is known late, and changes the height of the rows."""

    def wide(axes: Axes, columns: int) -> None:
        axes.plot([0, 1], [0, 1], label="an arm")
        axes.set_xlabel("an axis")
        axes.set_ylabel("nine_long ten_letter two more")

    def narrow(axes: Axes, columns: int) -> None:
        axes.set_title(f"layer{UNBROKEN}{axes.get_subplotspec().num1}")  # type: ignore[union-attr]

    figure = compose([*[Row(3.0, [wide], 1, least=1.0)] * 3, Row(3.0, [narrow] * 6, 6, least=1.0)])
    figure.draw_without_rendering()
    assert [axes.get_ylabel() for axes in figure.axes[:3]] == ["nine_long\nten_letter two more"] * 3
    headings = [axes.texts[0].get_window_extent() for axes in figure.axes[3:]]
    assert max(heading.y1 for heading in headings) < figure.axes[2].xaxis.label.get_window_extent().y0


def test_a_note_has_each_part_once_and_both_meanings_of_a_part() -> None:
    rows = [
        Row(1.5, [lambda axes, _: None], 1, f"Line: mean over {seeds} seeds. Dot: a seed. In percent")
        for seeds in (5, 3, 5)
    ]
    assert compose(rows).get_supxlabel() == "Line: mean over 5 seeds or mean over 3 seeds. Dot: a seed. In percent"


def test_titles_of_many_panels_are_between_the_rows(tmp_path: Path) -> None:
    series = []
    for number in range(7):
        synthetic.position_loss(tmp_path / f"{number}.parquet", 256, lambda position: 1.0)
        series.append(synthetic.series("base", 0, f"model{number}", position_loss=str(number)))
    titles = {f"model{number}": f"A model, number {number}" for number in range(7)}
    figure = draw_figure(synthetic.task([POSITION], series).model_copy(update={"titles": titles}), tmp_path)
    figure.draw_without_rendering()
    assert [len({axes.get_position().y0 for axes in figure.axes[row]}) for row in (slice(4), slice(4, 7))] == [1, 1]
    assert [axes.texts[-1].get_text() for axes in figure.axes] == [f"A model\nnumber {number}" for number in range(7)]
    assert len({axes.get_ylim() for axes in figure.axes}) == 1
    assert any("Dotted: T = 32" in text for text in texts(figure))
    above = min(axes.xaxis.label.get_window_extent().y0 for axes in figure.axes[:4])
    below = max(axes.texts[-1].get_window_extent().y1 for axes in figure.axes[4:])
    assert below < above
