"""The quantities that test claims: one function a kind, and the registry that names them.

A quantity is read once per arm and seed (`Reading`). With `against`, the two arms' readings of the same seed are
subtracted, on the logarithmic scale where the quantity is positive, so that the estimate is a ratio of arms.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

from ssm.base import curves
from ssm.claims.estimate import (
    Estimate,
    Reading,
    UndecidableError,
    log_mean_reading,
    mean_reading,
    resample,
    summarize,
)
from ssm.claims.on_models import ModelQuantity, estimate_on_model, words_on_model
from ssm.claims.panel import Panel, by_sequence, insist_on, tokens
from ssm.specs.claim import (
    DriftingHeads,
    LengthExcess,
    PerplexityAt,
    PerplexityGrowth,
    QuantitySpec,
    Remembrance,
    RestartRatio,
    ShapeDifference,
    StateNormGrowth,
)
from ssm.specs.figure import FigureTask, Series

ANY, POSITIVE = (-math.inf, math.inf), (0.0, math.inf)


Reader = Callable[[Panel, Series, Any], Reading]


@dataclass(frozen=True)
class Kind:
    """How one kind of quantity is read, compared, and called."""

    read: Reader
    words: Callable[[Any], str]  # what is computed, for one arm; {arm} and {restarted} stand for labels
    logarithmic: bool = False  # read as a logarithm
    limits: tuple[float, float] = ANY
    read_against: Reader | None = None  # the logarithm, where two arms are compared as a ratio but one is read plainly


def estimate(task: FigureTask, panel: str, quantity: QuantitySpec, folder: Path) -> Estimate:
    """The quantity of a claim, with its 95% interval.

    Args:
        panel: the named model of the panel.
        folder: where the tables are.

    Raises:
        UndecidableError: the tables cannot give it at this scale.
        TableError: a planned table is missing or broken.
    """
    here = Panel(task, panel, folder)
    if isinstance(quantity, ModelQuantity):
        return estimate_on_model(here, quantity)
    kind = KINDS[quantity.kind]
    against = getattr(quantity, "against", None)
    read = (kind.read_against or kind.read) if against else kind.read
    logarithmic = kind.logarithmic or read is kind.read_against
    readings = {seed: read(here, series, quantity) for seed, series in here.series(quantity.arm).items()}
    if against:
        there = Panel(task, getattr(quantity, "against_model", None) or panel, folder)
        others = {seed: read(there, series, quantity) for seed, series in there.series(against).items()}
        shared = sorted(readings.keys() & others.keys())
        if not shared:
            raise UndecidableError(f"the arms '{quantity.arm}' and '{against}' share no seed")
        readings = {seed: readings[seed] - others[seed] for seed in shared}
    limits = POSITIVE if logarithmic else ANY if against else kind.limits
    return summarize(readings, words(here, quantity), logarithmic, limits)


def words(panel: Panel, quantity: QuantitySpec) -> str:
    """What is computed, in one line."""
    if isinstance(quantity, ModelQuantity):
        return words_on_model(quantity)
    kind = KINDS[quantity.kind]
    arm, against = panel.label(quantity.arm), getattr(quantity, "against", None)
    restarted = getattr(quantity, "restarted", None)
    text = kind.words(quantity).format(arm=arm, restarted=panel.label(restarted) if restarted else "the same model")
    if not against:
        return text
    compared = "ratio to" if kind.logarithmic or kind.read_against else "difference from"
    other_model = getattr(quantity, "against_model", None)
    return f"{text}; {compared} the same of {panel.label(against)}" + (f" of {other_model}" if other_model else "")


def _position_loss(panel: Panel, series: Series, stop: int) -> pl.DataFrame:
    table = panel.table(series, "position_loss")
    insist_on(int(table["position_to"].max() or 0), stop, series)  # type: ignore[arg-type]
    return table


def _last_quarter(table: pl.DataFrame, stop: int) -> np.ndarray:
    """Mean loss of each sequence over [3/4 stop, stop). (S,)"""
    return curves.mean_loss(table, 3 * stop // 4, stop)["loss"].to_numpy()


def _restart_ratio(panel: Panel, series: Series, quantity: RestartRatio) -> Reading:
    stop = tokens(series, quantity)
    other = panel.series(quantity.restarted or series.arm).get(series.seed)
    if other is None:
        raise UndecidableError(f"the restarted arm '{quantity.restarted}' has no seed {series.seed}")
    restart = panel.table(other, "restart_loss")
    if stop not in curves.ratio_positions(restart):
        raise UndecidableError(
            f"the restarted loss of '{other.arm}' is not measured at position {stop:,} at this scale"
        )
    return mean_reading(curves.paired_log_ratio(_position_loss(panel, series, stop), restart, stop)["value"].to_numpy())


def _perplexity_growth(panel: Panel, series: Series, quantity: PerplexityGrowth) -> Reading:
    stop = tokens(series, quantity)
    table = _position_loss(panel, series, max(stop, series.context))
    early = curves.mean_loss(table, series.context // 2, series.context)["loss"].to_numpy()
    return mean_reading(_last_quarter(table, stop) - early)


def _perplexity_at(panel: Panel, series: Series, quantity: PerplexityAt) -> Reading:
    stop = tokens(series, quantity)
    return mean_reading(_last_quarter(_position_loss(panel, series, stop), stop))


def _state_statistics(panel: Panel, series: Series, stop: int) -> pl.DataFrame:
    table = panel.table(series, "state_statistics")
    insist_on(int(table["position"].max() or 0), stop, series)  # type: ignore[arg-type]
    return table


def _state_norm_growth(panel: Panel, series: Series, quantity: StateNormGrowth) -> Reading:
    stop = tokens(series, quantity)
    table = _state_statistics(panel, series, stop)
    late = curves.state_norm_at(table, stop)["norm"].to_numpy()
    early = curves.state_norm_at(table, series.context)["norm"].to_numpy()
    return log_mean_reading(late) - log_mean_reading(early)


def _drifting_heads(panel: Panel, series: Series, quantity: DriftingHeads) -> Reading:
    start, stop = series.context, tokens(series, quantity)
    table = _state_statistics(panel, series, stop)
    growth = curves.head_std_growth(table, start, stop)["growth"].to_numpy()
    value = float((growth > quantity.factor).mean()) if not np.isnan(growth).any() else math.nan
    heads = table.filter(pl.col("layer") >= 0, pl.col("head") >= 0)
    early, late = (by_sequence(heads.filter(pl.col("position") == p), ["layer", "head"], "std") for p in (start, stop))
    means_early, means_late = resample(early, late)  # each (DRAWS, heads)
    draws = (means_late > quantity.factor * means_early).mean(axis=1)
    return Reading(value, draws=draws, sequences=len(early))


def _remembrance_at(panel: Panel, series: Series, quantity: Remembrance) -> np.ndarray:
    """Effective Remembrance of each sequence at t, linear between the measured t. (S,)"""
    table = panel.table(series, "effective_remembrance")
    length = int(table["length"].max() or 0)  # type: ignore[arg-type]
    t = length - quantity.kept_contexts * series.context
    times = curves.remembrance_curve(table, quantity.distance)["t"].to_numpy()
    if not times[0] <= t <= times[-1]:
        raise UndecidableError(
            f"remembrance of '{series.arm}' is measured for t from {times[0]:,} to {times[-1]:,} at this scale, "
            f"t = {t:,.0f} is needed"
        )
    values = by_sequence(table.filter(pl.col("distance") == quantity.distance), ["t"], "value")
    return np.array([np.interp(t, times, row) for row in values])


def _remembrance(panel: Panel, series: Series, quantity: Remembrance) -> Reading:
    return mean_reading(_remembrance_at(panel, series, quantity))


def _log_remembrance(panel: Panel, series: Series, quantity: Remembrance) -> Reading:
    return log_mean_reading(_remembrance_at(panel, series, quantity))


def _shape_difference(panel: Panel, series: Series, quantity: ShapeDifference) -> Reading:
    table = panel.table(series, "effective_remembrance")
    names = (quantity.distance, quantity.with_distance)
    means = [curves.remembrance_curve(table, name)["value"].to_numpy()[None] for name in names]
    curve_of = [by_sequence(table.filter(pl.col("distance") == name), ["t"], "value") for name in names]
    value = float(_largest_difference(*means)[0])
    return Reading(value, draws=_largest_difference(*resample(*curve_of)), sequences=len(curve_of[0]))


def _largest_difference(first: np.ndarray, second: np.ndarray) -> np.ndarray:
    """Between the rows of two sets of curves, each taken from its range to [0, 1].

    (R, K), (R, K) -> (R,); NaN where a curve is constant.
    """
    with np.errstate(invalid="ignore"):
        shapes = [(x - x.min(axis=1, keepdims=True)) / np.ptp(x, axis=1, keepdims=True) for x in (first, second)]
    return np.abs(shapes[0] - shapes[1]).max(axis=1)


def _length_excess(panel: Panel, series: Series, quantity: LengthExcess) -> Reading:
    row = panel.table(series, "length_class").row(0, named=True)
    value, error = (math.nan if row[name] is None else row[name] for name in ("excess", "excess_error"))
    return Reading(value, error=error, sequences=row["excess_sequences"])


def _at_end(quantity: Any) -> str:
    """[3/4 kT, kT) with the claim's k."""
    k = quantity.times_context
    return f"[{0.75 * k:g}T, {k:g}T)"


KINDS: dict[str, Kind] = {
    "restart_ratio": Kind(
        _restart_ratio,
        lambda q: f"perplexity of {{arm}} / of {{restarted}} restarted T/2 to T tokens before, at {_at_end(q)}",
        logarithmic=True,
    ),
    "perplexity_growth": Kind(
        _perplexity_growth, lambda q: f"perplexity of {{arm}} at {_at_end(q)} / at [0.5T, T)", logarithmic=True
    ),
    "perplexity_at": Kind(_perplexity_at, lambda q: f"perplexity of {{arm}} at {_at_end(q)}", logarithmic=True),
    "state_norm_growth": Kind(
        _state_norm_growth,
        lambda q: f"mean norm of the whole state of {{arm}} at {q.times_context:g}T / at T",
        logarithmic=True,
    ),
    "drifting_heads": Kind(
        _drifting_heads,
        lambda q: (
            f"fraction of heads of {{arm}} whose state's std grows more than {q.factor:g}-fold "
            f"from T to {q.times_context:g}T"
        ),
        limits=(0.0, 1.0),
    ),
    "remembrance": Kind(
        _remembrance,
        lambda q: (
            f"mean Effective Remembrance ({q.distance.replace('_', ' ')}) of {{arm}}, t = length - {q.kept_contexts:g}T"
        ),
        limits=(0.0, 1.0),
        read_against=_log_remembrance,
    ),
    "shape_difference": Kind(
        _shape_difference,
        lambda q: (
            f"largest difference over t between {{arm}}'s mean remembrance under {q.distance.replace('_', ' ')} "
            f"and {q.with_distance.replace('_', ' ')}, each taken from its range to 0 to 1"
        ),
        limits=(0.0, 1.0),
    ),
    "length_excess": Kind(_length_excess, lambda q: "largest loss of {arm} past t* minus its loss at t*, nats"),
}
