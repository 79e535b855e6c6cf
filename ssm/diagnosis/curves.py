"""The curves of a diagnosis's plots, computed from its tables. Bands are 95% Student t intervals over sequences."""

from __future__ import annotations

from math import nan

import numpy as np
import polars as pl
from scipy.special import stdtrit

from ssm.claims.estimate import LEVEL
from ssm.claims.table_numbers import BIN, position_curve, remembrance_curve
from ssm.diagnosis.readings import DISTANCE, excess
from ssm.diagnosis.result import Diagnosis, HeadGrowth
from ssm.figures.data import Curve


def loss_curve(label: str, found: Diagnosis, losses: pl.DataFrame) -> Curve:
    frame = position_curve(losses)
    middle = (frame[BIN[0]].to_numpy() + frame[BIN[1]].to_numpy()) / 2
    half = _quantile(losses["sequence"].n_unique()) * frame["error"].to_numpy()
    return _curve(label, found.facts.context, middle, frame["loss"].to_numpy(), half)


def against_restarted(label: str, found: Diagnosis) -> Curve:
    starts, stops, values = excess(found.tables.position_loss, found.tables.restart_loss)
    error = values.std(0, ddof=1) / np.sqrt(len(values)) if len(values) > 1 else np.full(len(starts), nan)
    return _curve(label, found.facts.context, (starts + stops) / 2, values.mean(0), _quantile(len(values)) * error)


def kept_tokens(label: str, found: Diagnosis) -> Curve:
    table = found.tables.effective_remembrance
    assert table is not None
    frame = remembrance_curve(table, DISTANCE).filter(pl.col("t") > 0).sort("t", descending=True)
    value = frame["value"].to_numpy()
    half = _quantile(table["sequence"].n_unique()) * frame["error"].to_numpy()
    kept = found.facts.length - frame["t"].to_numpy()
    return Curve(label, label, found.facts.context, 1, kept, value, np.maximum(0, value - half), value + half)


def growth_of_head(arm: str, table: pl.DataFrame, head: HeadGrowth, context: int, sequences: int) -> Curve:
    """The std of one head's state, divided by its value at T, or at the last position before T.

    Args:
        table: of `head_std_curve`, a mean over `sequences` windows.
    """
    rows = table.filter(pl.col("layer") == head.layer, pl.col("head") == head.head).sort("position")
    position, std, error = (rows[name].to_numpy().astype(np.float64) for name in ("position", "std", "error"))
    at = max(0, int(np.searchsorted(position, context, side="right")) - 1)
    half = _quantile(sequences) * error
    scale = std[at] if std[at] > 0 else nan
    return Curve(arm, arm, context, 1, position, std / scale, (std - half) / scale, (std + half) / scale)


def gains(label: str, found: Diagnosis) -> Curve:
    """The gain of reading twice as many tokens, by number of tokens. The intervals hold jointly."""
    length = found.readings.effective_length
    assert length is not None
    known = [(n, gain) for n, gain in length.gains.items() if np.isfinite([gain.value, gain.low, gain.high]).all()]
    x, value, low, high = np.array([(n, g.value, g.low, g.high) for n, g in known], np.float64).reshape(-1, 4).T
    return Curve(label, label, found.facts.context, 1, x, value, low, high)


def _curve(label: str, context: int, x: np.ndarray, mean: np.ndarray, half: np.ndarray) -> Curve:
    """A curve from means and half widths of logarithms, (points,) each."""
    with np.errstate(over="ignore"):
        return Curve(label, label, context, 1, x, np.exp(mean), np.exp(mean - half), np.exp(mean + half))


def _quantile(sequences: int) -> float:
    """The half width of the interval in standard errors."""
    return float(stdtrit(sequences - 1, 0.5 + LEVEL / 2)) if sequences > 1 else nan
