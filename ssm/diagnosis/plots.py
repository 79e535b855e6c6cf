"""The plots of a diagnosis as SVG, from its tables: alone, or beside the diagnosis of the same model before."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import matplotlib
from matplotlib.axes import Axes

from ssm.base.curves import head_std_curve
from ssm.diagnosis.comparison import first_windows
from ssm.diagnosis.curves import against_restarted, by_position, gains, growth_of_head, kept_tokens, sequences_of
from ssm.diagnosis.heads import DRIFTS, head_growth, head_map
from ssm.diagnosis.plot_elements import (
    draw_intervals,
    head_grid,
    mark_failure,
    name_context,
    name_level,
    recall_grid,
    solved_grid,
)
from ssm.diagnosis.result import Diagnosis
from ssm.diagnosis.verdict import BREAKS, about
from ssm.figures.colors import INK
from ssm.figures.data import Curve
from ssm.figures.draw import compose, svg
from ssm.figures.panel import CurvePanel, Mark, Plotter, Row
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
class DiagnosisPlot:
    """One plot, and its text for those who cannot see it."""

    name: str
    svg: bytes
    label: str


def plots(
    diagnosis: Diagnosis, before: Diagnosis | None = None, control: Diagnosis | None = None
) -> list[DiagnosisPlot]:
    """Those that the tables allow, in the order of PLOTS.

    Args:
        before: the same model before it was trained on: every plot shows both, on the windows that both have read.
        control: the same, trained as long from zero states.
    """
    arms = {ALONE: diagnosis}
    if before is not None:
        every = {BEFORE: before} | ({CONTROL: control} if control is not None else {}) | {AFTER: diagnosis}
        windows = min(found.facts.sequences for found in every.values())
        arms = {label: replace(found, tables=first_windows(found.tables, windows)) for label, found in every.items()}
    found = []
    for name, draw in PLOTS.items():
        rows = draw(arms)
        if not rows:
            continue
        label = f"{LABELS[name]} of {diagnosis.facts.title}"
        with matplotlib.rc_context(RC | {"svg.hashsalt": name}):
            found.append(DiagnosisPlot(name, svg(compose(rows, WIDTH), label), label))
    return found


def _perplexity(arms: Arms) -> list[Row]:
    last = list(arms.values())[-1]
    curves = [by_position(label, found, found.tables.position_loss) for label, found in arms.items()]
    curves.append(by_position(RESTARTED, last, last.tables.restart_loss))
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
        [against_restarted(label, found) for label, found in arms.items()],
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
            draw_intervals(axes, last.readings.ratios)
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
            curve = growth_of_head(f"{name} {label}", table, head, found.facts.context, sequences_of(found))
            named = name if label == list(shown)[-1] else f"_{name}"
            curves.append(Curve(curve.arm, named, curve.context, curve.seeds, curve.x, curve.y, curve.low, curve.high))
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
        [kept_tokens(label, found) for label, found in known.items()],
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


def _gains(arms: Arms) -> list[Row]:
    """What a longer past is worth."""
    known = {label: found for label, found in arms.items() if found.readings.effective_length is not None}
    if not known:
        return []
    last = list(known.values())[-1]
    curves = [gains(label, found) for label, found in known.items()]
    panel = CurvePanel(
        curves,
        STYLES,
        "What twice as many tokens gain",
        "tokens read before a target",
        "perplexity / that with twice as many",
        (float(curves[-1].x.min(initial=1.0)), float(curves[-1].x.max(initial=2.0))),
        through=last.facts.context,
        level=1.0,
        marks=[Mark(last.facts.context, "")],
    )

    def painter(axes: Axes, columns: int) -> None:
        panel(axes, columns)
        name_context(axes, last.facts.context)
        if len(arms) == 1:
            axes.lines[0].set_label("_one curve needs no name")

    return [Row(HEIGHT, [painter], 1)]


def _heads(arms: Arms) -> list[Row]:
    """Every head of every layer, an arm below the other, on one scale of colours."""
    shown = {label: found for label, found in arms.items() if label != CONTROL}
    known = {
        label: head_map(head_growth(found.tables.state_statistics, found.facts.context))
        for label, found in shown.items()
        if found.tables.state_statistics is not None
    }
    if not known or len(known) < len(shown):
        return []
    rows = []
    for label, one in known.items():
        title = "Growth of the state past T" + (f", {label}" if len(known) > 1 else "")
        rows.append(Row(min(5.5, 1.3 + 0.22 * len(one.layers)), [head_grid(title, one, [*known.values()])], 1))
    return rows


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


def _ruler(arms: Arms) -> list[Row]:
    """A grid an arm, as of passkeys."""
    rows = []
    for label, found in arms.items():
        if found.readings.ruler and label != CONTROL:
            name = "RULER's prompts solved" + (f", {label}" if len(arms) > 1 else "")
            rows.append(Row(2.1, [solved_grid(name, found.readings.ruler, found.facts.context)], 1))
    return rows


PLOTS: dict[str, Callable[[Arms], list[Row]]] = {
    "perplexity": _perplexity,
    "ratio": _ratio,
    "states": _states,
    "heads": _heads,
    "remembrance": _remembrance,
    "gains": _gains,
    "passkey": _passkey,
    "needle": _needle,
    "ruler": _ruler,
}
LABELS = {
    "perplexity": "Perplexity by position",
    "ratio": "Ratio of perplexities, whole history to restarted, by position",
    "states": "Standard deviation of the state by position, of the heads in which it grows most,",
    "heads": "Growth of the standard deviation of the state of every head past the context, by layer and head,",
    "remembrance": "Effective Remembrance by number of tokens kept",
    "gains": "What twice as many tokens gain, by number of tokens read,",
    "passkey": "Passkeys found by length and depth",
    "needle": "Needles found by length and depth",
    "ruler": "RULER's prompts solved by task and length",
}


def _with_failures(panel: CurvePanel, arms: Arms) -> Plotter:
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
