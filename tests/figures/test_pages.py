"""Every figure file fits a page, with panels that are legible."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from figures import made_up

from ssm.figures import draw
from ssm.figures.draw import PAGE, compose, stacked
from ssm.figures.figure import FigureTask
from ssm.figures.rows import Row, heights
from ssm.plan.library import load_config
from ssm.plan.plan import make_plan

CONFIG = Path(__file__).parents[2] / "config"
TARGETS = sorted(path.stem for path in (CONFIG / "figures").glob("*.yaml"))
TALLEST = {"bn_appB", "bn_tab1", "bn_tab2", "lg_tab1", "mi_fig1", "mi_fig4"}  # nearest to a page


def made_up_figure(target: str, tables: Path) -> FigureTask:
    """The figure at scale smoke with one seed. Its made-up tables are written."""
    plan = make_plan(load_config(CONFIG, "smoke", [target]))
    task = plan.figures[target]
    first = {series.arm: series.seed for series in reversed(task.series)}
    kept = tuple(series for series in task.series if series.seed == first[series.arm])
    task = task.model_copy(update={"series": kept})
    wanted = {name: plan.measurements[name] for name in task.table_ids}
    made_up.write(replace(plan, measurements=wanted), tables)
    return task


@pytest.mark.parametrize(
    "target", [*sorted(TALLEST), *(pytest.param(t, marks=pytest.mark.exhaustive) for t in TARGETS if t not in TALLEST)]
)
def test_a_figure_fits_a_page(target: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No row is lower than what is legible."""
    monkeypatch.setattr(draw, "_label_ends", lambda *_: False)  # a legend, which is higher, without drawing
    rows = stacked(made_up_figure(target, tmp_path), tmp_path)
    assert rows[0].panels != [draw._nothing], "the made-up tables have nothing to draw"
    figure = compose(rows)
    assert figure.get_figheight() <= PAGE + 1e-6
    places: list[Any] = [axes.get_subplotspec() for axes in figure.axes]
    lines = dict.fromkeys((place.get_gridspec(), place.rowspan.start) for place in places)  # some rows share a grid
    for row, (grid, line) in zip(rows, lines, strict=True):
        height = grid.get_height_ratios()[line]
        assert height >= (row.height if row.least is None else row.least) - 1e-6, "split this figure, or draw less"


def test_rows_that_do_not_fit_become_lower_together() -> None:
    """Each loses the same share of what it can spare. None becomes lower than what is legible."""

    def of(height: float, least: float | None = None) -> Row:
        return Row(height, [], 1, least=least)

    assert heights([of(2.0, 1.0), of(3.0)], 6.0) == [2.0, 3.0]
    assert heights([of(3.0, 1.0), of(2.0, 1.0), of(3.0)], 6.5) == pytest.approx([2.0, 1.5, 3.0])
    assert heights([of(3.0, 2.0), of(4.0)], 3.0) == [2.0, 4.0]


@pytest.mark.parametrize(("least", "height"), [(1.0, PAGE), (2.5, 10.0)])
def test_a_figure_is_higher_than_a_page_if_its_rows_would_be_too_low(least: float, height: float) -> None:
    rows = [Row(3.0, [lambda axes, _: axes.plot([0, 1], [0, 1])], 1, least=least) for _ in range(4)]
    assert compose(rows).get_figheight() == pytest.approx(height)


def test_a_row_of_a_fixed_height_gets_it_also_below_panels_with_labels() -> None:
    def labelled(axes: Any, columns: int) -> None:
        axes.set_title("title")
        axes.set_xlabel("label")

    figure = compose(
        [*(Row(1.5, [labelled], 1, least=1.0) for _ in range(3)), Row(2.0, [lambda axes, _: axes.set_axis_off()], 1)]
    )
    figure.draw_without_rendering()
    assert figure.axes[-1].bbox.height / figure.dpi > 1.8
