"""The plots show the content of the tables."""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import matplotlib
import numpy as np
import polars as pl
import pytest
from diagnosis.fabricated import Tables, diagnosis, everything, fails_from, prompts, states, tables
from matplotlib.figure import Figure
from scipy import stats
from scipy.special import stdtrit

from ssm.claims.table_numbers import BIN, head_std_curve
from ssm.diagnosis import plots as module
from ssm.diagnosis.comparison import first_windows
from ssm.diagnosis.curves import against_restarted, kept_tokens, loss_curve
from ssm.diagnosis.plot_elements import head_grid
from ssm.diagnosis.plots import DiagnosisPlot, plots
from ssm.diagnosis.readings import DISTANCE
from ssm.diagnosis.result import EffectiveLength, HeadMap, Interval


@pytest.fixture
def only(monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Draw only these plots."""

    def chosen(*names: str) -> None:
        monkeypatch.setattr(module, "PLOTS", {name: module.PLOTS[name] for name in names})

    return chosen


@pytest.fixture
def panels(monkeypatch: pytest.MonkeyPatch) -> list[tuple[Any, ...]]:
    """The arguments of the panels that are drawn."""
    seen, real = list[tuple[Any, ...]](), module.CurvePanel
    monkeypatch.setattr(module, "CurvePanel", lambda *given, **named: seen.append(given) or real(*given, **named))
    return seen


def drawn(found: list[DiagnosisPlot]) -> dict[str, str]:
    """The texts in each plot."""
    return {p.name: " | ".join(re.findall(r"<text[^>]*>([^<]*)</text>", p.svg.decode())) for p in found}


def test_every_table_has_its_plot() -> None:
    texts = drawn(plots(diagnosis(everything(0, fails_from(3100)))))
    assert list(texts) == ["perplexity", "ratio", "states", "heads", "remembrance", "passkey", "needle"]
    for name in ("perplexity", "ratio"):
        assert "fails from 3,200" in texts[name]
        assert "T = 2k" in texts[name]
    assert "full history" in texts["perplexity"]
    assert "restarted" in texts["perplexity"]
    assert "tolerance 1.1" in texts["ratio"]
    assert "layer 3, head 11" in texts["states"]
    assert "dark to light: 1 or less to 4" in texts["heads"]
    assert texts["passkey"].count("88%") == 10
    assert texts["passkey"].count("12%") == 20
    assert texts["needle"].count("100%") == 10 + 4 + 1, "and the depth of the end"
    assert texts["needle"].count("25%") == 16 + 1
    assert "depth of the statement" in texts["needle"]


def test_bands_of_states_count_the_windows_of_states(only: Callable[..., None], panels: list[tuple[Any, ...]]) -> None:
    """Losses have 64 windows, and states have 8."""
    only("states")
    found = diagnosis(everything(0, fails_from(3100)))
    statistics = found.tables.state_statistics
    assert statistics is not None
    plots(found)
    (((curve, *_), *_),) = panels
    assert found.readings.drift is not None
    first = found.readings.drift.top[0]
    own = head_std_curve(statistics).filter(pl.col("layer") == first.layer, pl.col("head") == first.head)
    half = stdtrit(7, 0.975) * own["error"].to_numpy()
    scale = own.filter(pl.col("position") == found.facts.context)["std"].item()
    np.testing.assert_allclose((curve.high - curve.low) / 2, half / scale)


def test_bands_are_intervals_over_windows() -> None:
    found = diagnosis(everything(0, fails_from(3100)))
    full, length = found.tables.position_loss, found.facts.length
    last = full.filter(pl.col("position_to") == length)
    both = last.join(found.tables.restart_loss, on=["sequence", *BIN], suffix="_restarted")
    remembered = found.tables.effective_remembrance
    assert remembered is not None
    remembered = remembered.filter(pl.col("distance") == DISTANCE)
    at_last_t = remembered.filter(pl.col("t") == remembered["t"].max())["value"]
    for curve, place, values, finish in (
        (loss_curve("", found, full), -1, last["loss"], np.exp),
        (against_restarted("", found), -1, both["loss"] - both["loss_restarted"], np.exp),
        (kept_tokens("", found), 0, at_last_t, np.asarray),
    ):
        mean = values.to_numpy().mean()
        low, high = stats.t.interval(0.95, len(values) - 1, mean, stats.sem(values.to_numpy()))
        np.testing.assert_allclose([one[place] for one in (curve.low, curve.y, curve.high)], finish([low, mean, high]))


def test_gains_and_rulers_prompts_have_plots(only: Callable[..., None], panels: list[tuple[Any, ...]]) -> None:
    only("gains", "ruler")
    gains = {n: Interval(1.0 + 4 / n, 1.0, 1.0 + 8 / n) for n in (32, 64, 1024, 4096)}
    found = diagnosis(tables(0, accuracy=prompts()))
    found = replace(found, readings=replace(found.readings, effective_length=EffectiveLength(64, None, gains)))
    texts = drawn(plots(found))
    assert "tokens read before a target" in texts["gains"]
    assert panels[0][5] == (32.0, 4096.0)
    assert "T = 2k" in texts["gains"]
    assert [name in texts["ruler"] for name in ("niah_single_1", "vt", "niah_multikey_2")] == [True, True, False]
    assert texts["ruler"].count("100%") == 1
    assert texts["ruler"].count("25%") == 1
    assert "line: the context" in texts["ruler"]


def test_before_and_after_share_the_color_scale_of_heads(only: Callable[..., None]) -> None:
    only("heads")
    grown, flat = (states(np.full((2, 3), factor)) for factor in (64.0, 1.0))
    before, after = (diagnosis(tables(0, state_statistics=table)) for table in (grown, flat))
    text = drawn(plots(after, before))["heads"]
    assert text.count("dark to light: 1 or less to 64") == text.count("dark to light") == 1, "one label for both"
    assert {"Growth of the state past T, before", "Growth of the state past T, after"} <= set(text.split(" | "))


def test_the_grid_has_a_cell_for_every_head_with_a_number() -> None:
    """Colors are dark to light on one scale. A point: the head drifts. A cross: its state is not a number."""
    shown = HeadMap(1, (0, 3), ((1.0, 2.0, 4.0), (math.nan, math.nan)), ((False, False, True), (True, False)))
    higher = HeadMap(1, (0,), ((16.0,),), ((True,),))
    for maps, shares in (([shown], [0.0, 0.5, 1.0, 1.0]), ([shown, higher], [0.0, 0.25, 0.5, 1.0])):
        axes = Figure().subplots()
        head_grid("", shown, maps)(axes, 1)
        (cells,) = axes.collections
        corners = [tuple(path.vertices[0]) for path in cells.get_paths()]
        assert corners == [(0, 0), (1, 0), (2, 0), (0, 1)]
        cells.update_scalarmappable()
        np.testing.assert_array_equal(cells.get_facecolors(), [matplotlib.colormaps["viridis"](one) for one in shares])
        marks = {line.get_marker(): line.get_xydata().tolist() for line in axes.lines}
        assert marks == {".": [[2.48, 0.47]], "x": [[0.48, 1.47]]}
        assert [line.get_color() for line in axes.lines] == [("#000000" if shares[2] > 0.55 else "#ffffff"), "#000000"]
        assert [label.get_text() for label in axes.get_yticklabels()] == ["0", "3"]


def test_what_was_not_measured_is_not_drawn() -> None:
    texts = drawn(plots(diagnosis(tables(0))))
    assert list(texts) == ["perplexity", "ratio"]
    assert "fails" not in texts["ratio"]


def test_the_grid_has_a_border_at_the_context(only: Callable[..., None]) -> None:
    only("passkey")
    both = everything(0).passkey
    assert both is not None
    beyond = both.filter(pl.col("length") > 2048)
    for table, bordered in ((both, True), (beyond, False)):
        text = drawn(plots(diagnosis(tables(0, passkey=table))))["passkey"]
        assert ("line: the context" in text) == bordered


def test_a_failure_that_is_not_decided_is_not_marked() -> None:
    found = diagnosis(tables(0, fails_from(28000), sequences=8))
    assert found.readings.failure is not None
    assert all("fails" not in text for text in drawn(plots(found)).values())


def test_every_plot_shows_before_and_after() -> None:
    before, after = diagnosis(everything(0, fails_from(3100))), diagnosis(everything(0, factor=1.3))
    texts = drawn(plots(after, before, before))
    for name in ("perplexity", "ratio", "remembrance"):
        for label in ("before", "after", "control"):
            assert label in texts[name].split(" | "), (name, label)
    assert "fails from 3,200 (before)" in texts["ratio"]
    assert "(control)" not in texts["ratio"]
    assert "Dotted: before. Solid: after" in texts["states"]
    assert {"Passkeys found, before", "Passkeys found, after"} <= set(texts["passkey"].split(" | "))


def test_before_and_after_are_drawn_on_the_same_windows(only: Callable[..., None]) -> None:
    only("ratio")
    given = tables(0)
    many, few = diagnosis(given), diagnosis(first_windows(given, 16))
    (ratio,) = plots(few, many)
    assert ratio.svg == plots(few, few)[0].svg != plots(many, many)[0].svg


def test_curves_end_where_losses_are_not_numbers() -> None:
    given = tables(0, fails_from(3100))
    for start in (0, 8192):
        lost = pl.when(pl.col("position_from") >= start).then(math.nan).otherwise("loss").alias("loss")
        found = diagnosis(Tables(given.position_loss.with_columns(lost), given.restart_loss, given.length_class))
        assert list(drawn(plots(found))) == ["perplexity", "ratio"]


def test_a_state_that_is_not_a_number_is_drawn_up_to_there(only: Callable[..., None]) -> None:
    only("states")
    given = everything(0)
    assert given.state_statistics is not None
    lost = pl.when(pl.col("position") > 4096).then(np.inf).otherwise("std").alias("std")
    found = diagnosis(
        Tables(
            given.position_loss,
            given.restart_loss,
            given.length_class,
            state_statistics=given.state_statistics.with_columns(lost),
        )
    )
    assert "layer 0, head 0" in drawn(plots(found))["states"]


def test_the_same_diagnosis_gives_the_same_bytes(only: Callable[..., None]) -> None:
    only("ratio", "states")
    found = diagnosis(everything(0, fails_from(3100)))
    assert [plot.svg for plot in plots(found)] == [plot.svg for plot in plots(found)]
