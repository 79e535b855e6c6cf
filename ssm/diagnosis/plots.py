"""The plots of a diagnosis as SVG: of one model, or of a model before and after an extension."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial

import matplotlib
from matplotlib.axes import Axes

from ssm.claims.table_numbers import head_std_curve
from ssm.diagnosis.comparison import first_windows
from ssm.diagnosis.curves import against_restarted, gains, growth_of_head, kept_tokens, loss_curve
from ssm.diagnosis.heads import DRIFTS
from ssm.diagnosis.outcome import BREAKS
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
from ssm.diagnosis.verdict import about
from ssm.figures.colors import INK
from ssm.figures.data import Curve
from ssm.figures.draw import compose, svg
from ssm.figures.panel import CurvePanel, Mark
from ssm.figures.rows import Plotter, Row
from ssm.figures.style import BLUE, DOTS, GREEN, ORANGE, PURPLE, RC, SKY, VERMILION, ArmStyle

WIDTH, HEIGHT = 5.4, 3.5  # inches: two fit side by side on a desktop, and one is legible on a phone
BROKEN = (0.0, (5.0, 1.5))
ALONE, BEFORE, AFTER, CONTROL = "full history", "before", "after", "control"
RESTARTED = "restarted"
UNNAMED = "_a single curve has no legend"  # matplotlib hides labels that begin with _
STYLES = {
    ALONE: ArmStyle(BLUE, "-", "o"),
    BEFORE: ArmStyle(INK, "-", "o"),
    AFTER: ArmStyle(BLUE, "-", "v"),
    CONTROL: ArmStyle(SKY, BROKEN, "s"),
    RESTARTED: ArmStyle(ORANGE, BROKEN, "D", hollow=True),
}
HEADS = (VERMILION, BLUE, GREEN, ORANGE, PURPLE, SKY)  # one color for each head
LINES: dict[str, str | tuple[float, tuple[float, ...]]] = {BEFORE: DOTS, AFTER: "-", ALONE: "-"}

Arms = dict[str, Diagnosis]  # by label, in drawing order


@dataclass(frozen=True)
class DiagnosisPlot:
    """One plot, with an alternative text."""

    name: str
    svg: bytes
    label: str


def plots(
    diagnosis: Diagnosis, before: Diagnosis | None = None, control: Diagnosis | None = None
) -> list[DiagnosisPlot]:
    """All plots for which the tables have data, in the order of PLOTS.

    Args:
        before: the same model before its extension. Every plot shows both, on the windows that both have read.
        control: the control arm of the extension.
    """
    arms = {ALONE: diagnosis}
    if before is not None:
        every = {BEFORE: before} | ({CONTROL: control} if control is not None else {}) | {AFTER: diagnosis}
        windows = min(arm.facts.sequences for arm in every.values())
        arms = {label: replace(arm, tables=first_windows(arm.tables, windows)) for label, arm in every.items()}
    drawn = []
    for name, draw in PLOTS.items():
        rows = draw(arms)
        if not rows:
            continue
        label = f"{LABELS[name]} of {diagnosis.facts.title}"
        with matplotlib.rc_context(RC | {"svg.hashsalt": name}):
            drawn.append(DiagnosisPlot(name, svg(compose(rows, WIDTH), label), label))
    return drawn


def _perplexity(arms: Arms) -> list[Row]:
    last = list(arms.values())[-1]
    curves = [loss_curve(label, diagnosis, diagnosis.tables.position_loss) for label, diagnosis in arms.items()]
    curves.append(loss_curve(RESTARTED, last, last.tables.restart_loss))
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
        [against_restarted(label, diagnosis) for label, diagnosis in arms.items()],
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
            axes.lines[0].set_label(UNNAMED)
            draw_intervals(axes, last.readings.ratios)
        name_level(axes, last.facts.tolerance, f"tolerance {last.facts.tolerance:g}")

    return [Row(HEIGHT, [painter], 1)]


def _states(arms: Arms) -> list[Row]:
    """The heads that grow most in the first arm."""
    first, last = next(iter(arms.values())), list(arms.values())[-1]
    shown = {label: diagnosis for label, diagnosis in arms.items() if label != CONTROL}
    if first.readings.drift is None or any(diagnosis.tables.state_statistics is None for diagnosis in shown.values()):
        return []
    heads = first.readings.drift.top[: 6 if len(shown) == 1 else 3]
    curves, styles = [], {}
    for label, diagnosis in shown.items():
        statistics = diagnosis.tables.state_statistics
        assert statistics is not None
        table, sequences = head_std_curve(statistics), statistics["sequence"].n_unique()
        for head, color in zip(heads, HEADS, strict=False):
            name = f"layer {head.layer}, head {head.head}"
            curve = growth_of_head(f"{name} {label}", table, head, diagnosis.facts.context, sequences)
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
    known = {
        label: diagnosis for label, diagnosis in arms.items() if diagnosis.tables.effective_remembrance is not None
    }
    if not known:
        return []
    last = list(known.values())[-1]
    context, length = last.facts.context, last.facts.length
    panel = CurvePanel(
        [kept_tokens(label, diagnosis) for label, diagnosis in known.items()],
        STYLES,
        "Effective Remembrance",
        "most recent tokens kept",
        "change of the prediction\n(total variation)",
        (max(1.0, context / 64), float(length)),
        through=context,
        y_limits=(0.0, 1.0),
        marks=[Mark(context, "")],
    )
    return [Row(HEIGHT, [_with_context(panel, arms, context)], 1)]


def _gains(arms: Arms) -> list[Row]:
    """The gain of a longer history."""
    known = {label: diagnosis for label, diagnosis in arms.items() if diagnosis.readings.effective_length is not None}
    curves = [curve for label, diagnosis in known.items() if len((curve := gains(label, diagnosis)).x)]
    if not curves:
        return []
    last, shortest = list(known.values())[-1], float(curves[-1].x.min())
    panel = CurvePanel(
        curves,
        STYLES,
        "What twice as many tokens gain",
        "tokens read before a target",
        "perplexity / that with twice as many",
        (shortest, max(2 * shortest, float(curves[-1].x.max()))),
        through=last.facts.context,
        level=1.0,
        marks=[Mark(last.facts.context, "")],
    )
    return [Row(HEIGHT, [_with_context(panel, arms, last.facts.context)], 1)]


def _heads(arms: Arms) -> list[Row]:
    """The growth of every head, one grid for each arm, on a common color scale."""
    shown = {label: diagnosis for label, diagnosis in arms.items() if label != CONTROL}
    known = {
        label: diagnosis.readings.drift.map
        for label, diagnosis in shown.items()
        if diagnosis.readings.drift is not None and diagnosis.readings.drift.map is not None
    }
    if not known or len(known) < len(shown):
        return []
    rows = []
    for label, heads in known.items():
        title = "Growth of the state past T" + (f", {label}" if len(known) > 1 else "")
        rows.append(Row(min(5.5, 1.3 + 0.22 * len(heads.layers)), [head_grid(title, heads, [*known.values()])], 1))
    return rows


def _recalled(reading: str, title: str, what: str, arms: Arms) -> list[Row]:
    """One grid of lengths and depths for each arm."""
    return [
        Row(2.7, [recall_grid(name, getattr(arm.readings, reading), arm.facts.context, what)], 1)
        for name, arm in _tested(arms, reading, title)
    ]


def _ruler(arms: Arms) -> list[Row]:
    """One grid of lengths and tasks for each arm."""
    return [
        Row(2.1, [solved_grid(name, arm.readings.ruler, arm.facts.context)], 1)
        for name, arm in _tested(arms, "ruler", "RULER's prompts solved")
    ]


def _tested(arms: Arms, reading: str, title: str) -> list[tuple[str, Diagnosis]]:
    """The arms, without the control, that made a recall test, each with the title of its grid."""
    return [
        (f"{title}, {label}" if len(arms) > 1 else title, arm)
        for label, arm in arms.items()
        if getattr(arm.readings, reading) and label != CONTROL
    ]


PLOTS: dict[str, Callable[[Arms], list[Row]]] = {
    "perplexity": _perplexity,
    "ratio": _ratio,
    "states": _states,
    "heads": _heads,
    "remembrance": _remembrance,
    "gains": _gains,
    "passkey": partial(_recalled, "passkey", "Passkeys found", "key"),
    "needle": partial(_recalled, "needle", "Needles found", "statement"),
    "ruler": _ruler,
}
LABELS = {
    "perplexity": "Perplexity by position",
    "ratio": "Ratio of perplexities, full history to restart, by position",
    "states": "Standard deviation of the state by position, of the heads in which it grows most,",
    "heads": "Growth of the standard deviation of the state of every head past the context, by layer and head,",
    "remembrance": "Effective Remembrance by number of tokens kept",
    "gains": "What twice as many tokens gain, by number of tokens read,",
    "passkey": "Passkeys found by length and depth",
    "needle": "Needles found by length and depth",
    "ruler": "RULER's prompts solved by task and length",
}


def _with_context(panel: CurvePanel, arms: Arms, context: int) -> Plotter:
    """The panel with the name of its line at T. A single arm has no legend."""

    def painter(axes: Axes, columns: int) -> None:
        panel(axes, columns)
        name_context(axes, context)
        if len(arms) == 1:
            axes.lines[0].set_label(UNNAMED)

    return painter


def _with_failures(panel: CurvePanel, arms: Arms) -> Plotter:
    """The panel with the failure position of each model that breaks."""

    def painter(axes: Axes, columns: int) -> None:
        panel(axes, columns)
        name_context(axes, next(iter(arms.values())).facts.context)
        for number, (label, diagnosis) in enumerate(arms.items()):
            failure = diagnosis.readings.failure
            if label != CONTROL and failure is not None and diagnosis.verdict.outcome == BREAKS:
                name = f"fails from {about(failure.value)}" + ("" if len(arms) == 1 else f" ({label})")
                mark_failure(axes, failure, name, VERMILION if len(arms) == 1 else STYLES[label].color, number)

    return painter


def _range(found: Diagnosis) -> tuple[float, float]:
    return max(1.0, found.facts.context / 8), float(found.facts.length)
