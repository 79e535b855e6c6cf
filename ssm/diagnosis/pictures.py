"""The pictures of a diagnosis as SVG, from its tables: alone, or beside the diagnosis of the same model before."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from math import nan

import matplotlib
import numpy as np
import polars as pl
from matplotlib.axes import Axes
from scipy.special import stdtrit

from ssm.base.curves import BIN, head_std_curve, position_curve, remembrance_curve
from ssm.claims.estimate import LEVEL
from ssm.diagnosis.comparison import first_windows
from ssm.diagnosis.painting import mark_failure, name_context, name_level, paint_intervals, recall_grid
from ssm.diagnosis.readings import DISTANCE, DRIFTS, excess
from ssm.diagnosis.result import Diagnosis, HeadGrowth
from ssm.diagnosis.verdict import BREAKS, about
from ssm.figures.colors import INK
from ssm.figures.data import Curve
from ssm.figures.draw import compose, svg
from ssm.figures.panel import CurvePanel, Mark, Painter, Row
from ssm.figures.style import (
    BLUE,
    DOTS,
    GREEN,
    ORANGE,
    PURPLE,
    RC,
    SKY,
    VERMILION,
    ArmStyle,
)

WIDTH, HEIGHT = 5.4, 3.5  # inches: two stand side by side on a desk, one is legible on a phone
BROKEN = (0.0, (5.0, 1.5))
ALONE, BEFORE, AFTER, CONTROL = "whole history", "before", "after", "control"
RESTARTED = "restarted"
STYLES = {
    ALONE: ArmStyle(BLUE, "-", "o"),
    BEFORE: ArmStyle(INK, "-", "o"),
    AFTER: ArmStyle(BLUE, "-", "v"),
    CONTROL: ArmStyle(SKY, BROKEN, "s"),
    RESTARTED: ArmStyle(ORANGE, BROKEN, "D", hollow=True),
}
HEADS = (VERMILION, BLUE, GREEN, ORANGE, PURPLE, SKY)  # a colour each
LINES: dict[str, str | tuple[float, tuple[float, ...]]] = {BEFORE: DOTS, AFTER: "-", ALONE: "-"}

Arms = dict[str, Diagnosis]  # by label, in the order in which they are drawn


@dataclass(frozen=True)
class Picture:
    """One picture, and what is said instead of it to those who cannot see it."""

    name: str
    svg: bytes
    label: str


def pictures(diagnosis: Diagnosis, before: Diagnosis | None = None, control: Diagnosis | None = None) -> list[Picture]:
    """Those that the tables allow: perplexity, ratio, states, remembrance, passkey.

    Args:
        before: the same model before it was trained on: every picture shows both, on the windows that both have read.
        control: the same, trained as long from zero states.
    """
    arms = {ALONE: diagnosis}
    if before is not None:
        every = {BEFORE: before} | ({CONTROL: control} if control is not None else {}) | {AFTER: diagnosis}
        windows = min(found.facts.sequences for found in every.values())
        arms = {label: replace(found, tables=first_windows(found.tables, windows)) for label, found in every.items()}
    found = []
    for name, draw in DRAWINGS.items():
        rows = draw(arms)
        if not rows:
            continue
        label = f"{LABELS[name]} of {diagnosis.facts.title}"
        with matplotlib.rc_context(RC | {"svg.hashsalt": name}):
            found.append(Picture(name, svg(compose(rows, WIDTH), name, label).encode(), label))
    return found


def _perplexity(arms: Arms) -> list[Row]:
    last = list(arms.values())[-1]
    curves = [_by_position(label, found, found.tables.position_loss) for label, found in arms.items()]
    curves.append(_by_position(RESTARTED, last, last.tables.restart_loss))
    panel = CurvePanel(
        curves,
        STYLES,
        "Perplexity",
        "position (tokens)",
        "perplexity per token",
        _range(last),
        through=last.facts.context,
        log_y=True,
        marks=[Mark(last.facts.context, "")],
    )
    return [Row(HEIGHT, [_with_failures(panel, arms)], 1)]


def _ratio(arms: Arms) -> list[Row]:
    last = list(arms.values())[-1]
    panel = CurvePanel(
        [_excess(label, found) for label, found in arms.items()],
        STYLES,
        "Against the same model restarted",
        "position (tokens)",
        "ratio of perplexities",
        _range(last),
        through=last.facts.context,
        log_y=True,
        level=last.facts.tolerance,
        marks=[Mark(last.facts.context, "")],
    )

    def painter(axes: Axes, columns: int) -> None:
        _with_failures(panel, arms)(axes, columns)
        if len(arms) == 1:
            axes.lines[0].set_label("_one curve needs no name")
            paint_intervals(axes, last.readings.ratios)
        name_level(axes, last.facts.tolerance, f"tolerance {last.facts.tolerance:g}")

    return [Row(HEIGHT, [painter], 1)]


def _states(arms: Arms) -> list[Row]:
    """The heads that grow most: in the first arm, if there are several."""
    first, last = next(iter(arms.values())), list(arms.values())[-1]
    shown = {label: found for label, found in arms.items() if label != CONTROL}
    if first.readings.drift is None or any(found.tables.state_statistics is None for found in shown.values()):
        return []
    heads = first.readings.drift.top[: 6 if len(shown) == 1 else 3]
    curves, styles = [], {}
    for label, found in shown.items():
        assert found.tables.state_statistics is not None
        table = head_std_curve(found.tables.state_statistics)
        for head, color in zip(heads, HEADS, strict=False):
            name = f"layer {head.layer}, head {head.head}"
            curve = _growth(f"{name} {label}", table, head, found.facts.context, _sequences(found))
            named = name if label == list(shown)[-1] else f"_{name}"
            curves.append(Curve(curve.arm, named, *_rest(curve)))
            styles[curve.arm] = ArmStyle(color, LINES[label], "o", hollow=label == BEFORE)
    panel = CurvePanel(
        curves,
        styles,
        "State of the heads that grow most",
        "position (tokens)",
        "std of the state / at T",
        (last.facts.context / 2, float(last.facts.length)),
        through=last.facts.context,
        log_y=True,
        level=DRIFTS,
        marks=[Mark(last.facts.context, "")],
    )

    def painter(axes: Axes, columns: int) -> None:
        panel(axes, columns)
        name_context(axes, last.facts.context)
        name_level(axes, DRIFTS, "doubled")

    return [Row(HEIGHT, [painter], 1, "Dotted: before. Solid: after" if len(shown) == 2 else "")]


def _remembrance(arms: Arms) -> list[Row]:
    known = {label: found for label, found in arms.items() if found.tables.effective_remembrance is not None}
    if not known:
        return []
    last = list(known.values())[-1]
    context, length = last.facts.context, last.facts.length
    panel = CurvePanel(
        [_kept(label, found) for label, found in known.items()],
        STYLES,
        "Effective Remembrance",
        "most recent tokens kept",
        "change of the prediction\n(total variation)",
        (max(1.0, context / 64), float(length)),
        through=context,
        y_limits=(0.0, 1.0),
        marks=[Mark(context, "")],
    )

    def painter(axes: Axes, columns: int) -> None:
        panel(axes, columns)
        name_context(axes, context)
        if len(arms) == 1:
            axes.lines[0].set_label("_one curve needs no name")

    return [Row(HEIGHT, [painter], 1)]


def _passkey(arms: Arms) -> list[Row]:
    return _recalled(arms, "passkey", "Passkeys found", "key")


def _needle(arms: Arms) -> list[Row]:
    return _recalled(arms, "needle", "Needles found", "statement")


def _recalled(arms: Arms, reading: str, title: str, what: str) -> list[Row]:
    """A grid an arm, of those that were asked."""
    rows = []
    for label, found in arms.items():
        cells = getattr(found.readings, reading)
        if cells and label != CONTROL:
            name = f"{title}, {label}" if len(arms) > 1 else title
            rows.append(Row(2.7, [recall_grid(name, cells, found.facts.context, what)], 1))
    return rows


DRAWINGS: dict[str, Callable[[Arms], list[Row]]] = {
    "perplexity": _perplexity,
    "ratio": _ratio,
    "states": _states,
    "remembrance": _remembrance,
    "passkey": _passkey,
    "needle": _needle,
}
LABELS = {
    "perplexity": "Perplexity by position",
    "ratio": "Ratio of perplexities, whole history to restarted, by position",
    "states": "Standard deviation of the state by position, of the heads in which it grows most,",
    "remembrance": "Effective Remembrance by number of tokens kept",
    "passkey": "Passkeys found by length and depth",
    "needle": "Needles found by length and depth",
}


def _by_position(label: str, found: Diagnosis, losses: pl.DataFrame) -> Curve:
    frame = position_curve(losses)
    middle = (frame[BIN[0]].to_numpy() + frame[BIN[1]].to_numpy()) / 2
    mean, half = frame["loss"].to_numpy(), _quantile(_sequences(found)) * frame["error"].to_numpy()
    return _curve(label, found.facts.context, middle, mean, half)


def _excess(label: str, found: Diagnosis) -> Curve:
    starts, stops, values = excess(found.tables.position_loss, found.tables.restart_loss)
    error = values.std(0, ddof=1) / np.sqrt(len(values)) if len(values) > 1 else np.full(len(starts), nan)
    return _curve(label, found.facts.context, (starts + stops) / 2, values.mean(0), _quantile(len(values)) * error)


def _kept(label: str, found: Diagnosis) -> Curve:
    table = found.tables.effective_remembrance
    assert table is not None
    frame = remembrance_curve(table, DISTANCE).filter(pl.col("t") > 0).sort("t", descending=True)
    value = frame["value"].to_numpy()
    half = _quantile(table["sequence"].n_unique()) * frame["error"].to_numpy()
    kept = found.facts.length - frame["t"].to_numpy()
    return Curve(label, label, found.facts.context, 1, kept, value, np.maximum(0, value - half), value + half)


def _growth(arm: str, table: pl.DataFrame, head: HeadGrowth, context: int, sequences: int) -> Curve:
    """The std of one head's state, as a multiple of what it is at T or at the last position before it."""
    rows = table.filter(pl.col("layer") == head.layer, pl.col("head") == head.head).sort("position")
    position, std, error = (rows[name].to_numpy().astype(np.float64) for name in ("position", "std", "error"))
    at = max(0, int(np.searchsorted(position, context, side="right")) - 1)
    half = _quantile(sequences) * error
    scale = std[at] if std[at] > 0 else nan
    return Curve(arm, arm, context, 1, position, std / scale, (std - half) / scale, (std + half) / scale)


def _curve(label: str, context: int, x: np.ndarray, mean: np.ndarray, half: np.ndarray) -> Curve:
    """From means of logarithms, (points,) each."""
    with np.errstate(over="ignore"):
        return Curve(label, label, context, 1, x, np.exp(mean), np.exp(mean - half), np.exp(mean + half))


def _rest(curve: Curve) -> tuple[int, int, np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    return curve.context, curve.seeds, curve.x, curve.y, curve.low, curve.high


def _with_failures(panel: CurvePanel, arms: Arms) -> Painter:
    """The panel, and where each model that breaks begins to fail."""

    def painter(axes: Axes, columns: int) -> None:
        panel(axes, columns)
        name_context(axes, next(iter(arms.values())).facts.context)
        for number, (label, found) in enumerate(arms.items()):
            failure = found.readings.failure
            if label != CONTROL and failure is not None and found.verdict.outcome == BREAKS:
                name = f"fails from {about(failure.value)}" + ("" if len(arms) == 1 else f" ({label})")
                mark_failure(axes, failure, name, VERMILION if len(arms) == 1 else STYLES[label].color, number)

    return painter


def _range(found: Diagnosis) -> tuple[float, float]:
    return max(1.0, found.facts.context / 8), float(found.facts.length)


def _sequences(found: Diagnosis) -> int:
    return found.tables.position_loss["sequence"].n_unique()


def _quantile(sequences: int) -> float:
    """How many standard errors the interval reaches."""
    return float(stdtrit(sequences - 1, 0.5 + LEVEL / 2)) if sequences > 1 else nan
