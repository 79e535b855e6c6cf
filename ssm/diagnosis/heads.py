"""Find the heads that fail: their state grows beyond the context."""

from __future__ import annotations

from math import inf, nan

import numpy as np
import polars as pl
from scipy.special import stdtrit

from ssm.base.columns import maximum
from ssm.claims.estimate import LEVEL
from ssm.claims.table_numbers import positions_of_growth
from ssm.diagnosis.intervals import of_logarithms
from ssm.diagnosis.result import Drift, HeadGrowth, HeadMap

DRIFTS = 2.0  # a head drifts if the standard deviation of its state grows by more than this factor (lg figure 9)
SHOWN = 10  # number of heads in the table
WIDE = 64  # maximal number of columns of a map


def measured_drift(state_statistics: pl.DataFrame, context: int) -> Drift | None:
    """As `drift`; None if no head has a number, neither at the start nor at the end of the comparison."""
    found = drift(state_statistics, context)
    last = state_statistics.filter(pl.col("head") >= 0, pl.col("position") == maximum(state_statistics["position"]))
    return found if found.drifting or last["std"].is_finite().any() else None


def drift(state_statistics: pl.DataFrame, context: int) -> Drift:
    """Growth of the standard deviation of every head's state, from T to the last measured position.

    It is the growth of the mean over sequences. Its interval is Student t on the logarithm (delta method). A head
    drifts if the whole interval is above DRIFTS, or if its state is not a number at the end.
    """
    heads = head_growth(state_statistics, context)
    ranked = (
        heads.with_columns(known=pl.col("log").is_finite())
        .sort("lost", "known", "log", "layer", "head", descending=[True, True, True, False, False])
        .head(SHOWN)
    )
    top = [
        HeadGrowth(row["layer"], row["head"], of_logarithms(row["log"], row["low"], row["log"] + row["half"]))
        for row in ranked.iter_rows(named=True)
    ]
    drifting = heads.filter("drifting")
    counts = drifting.group_by("layer").len().sort("layer").rows()
    unmeasured = heads.filter(~pl.col("measured")).height
    return Drift(heads.height, drifting.height, tuple(top), head_map(heads), dict(counts), unmeasured)


def head_growth(state_statistics: pl.DataFrame, context: int) -> pl.DataFrame:
    """Growth by layer and head.

    Columns: layer, head, log (of the growth), low, half (the half width of its interval), lost (the state is not a
    number at the end), measured (at the start, the std is a number above zero; or the state is lost), drifting.
    """
    heads = state_statistics.filter(pl.col("layer") >= 0, pl.col("head") >= 0)
    where = ["sequence", "layer", "head"]
    early, late = (
        heads.filter(pl.col("position") == position).select(*where, "std")
        for position in positions_of_growth(state_statistics, context)
    )
    one, other = pl.col("std"), pl.col("std_late").fill_null(nan)
    contribution = other / other.mean() - one / one.mean()  # of each sequence to the logarithm of the growth
    growth = (
        early.join(late, on=where, suffix="_late")
        .group_by("layer", "head")
        .agg(
            log=(other.mean() / one.mean()).log(),
            error=contribution.std() / pl.len().sqrt(),
            sequences=pl.len(),
            lost=one.is_finite().all() & ~other.is_finite().all(),
            start=one.is_finite().all() & (one.mean() > 0),
        )
        .sort("layer", "head")
    )
    sequences = growth["sequences"].to_numpy()
    half = np.where(sequences > 1, stdtrit(np.maximum(sequences - 1, 1), 0.5 + LEVEL / 2), inf)
    error = np.where(sequences > 1, growth["error"].fill_null(0.0).to_numpy(), 1.0)
    growth = growth.with_columns(half=pl.Series(half * error)).with_columns(low=pl.col("log") - pl.col("half"))
    drifting = pl.col("lost") | (pl.col("low").is_finite() & (pl.col("low") > np.log(DRIFTS)))
    measured = pl.col("lost") | pl.col("start")  # growth from zero has no number
    return growth.select("layer", "head", "log", "low", "half", "lost", measured=measured, drifting=drifting)


def head_map(growth: pl.DataFrame) -> HeadMap:
    """The growth of every head in a grid of layers and heads. With more than WIDE heads, neighbors share a cell.

    Args:
        growth: a table of `head_growth`.
    """
    together = -(-(maximum(growth["head"]) + 1) // WIDE)
    value = pl.when("lost").then(nan).when("measured").then(pl.col("log").exp())
    cells = (
        growth.select("layer", "drifting", column=pl.col("head") // together, value=value)
        .group_by("layer", "column")
        .agg(pl.col("value").nan_max(), pl.col("drifting").any())
        .sort("layer", "column")
    )
    rows = cells.group_by("layer", maintain_order=True).agg("value", "drifting").rows()
    return HeadMap(
        together,
        tuple(layer for layer, *_ in rows),
        tuple(tuple(nan if one is None else one for one in values) for _, values, _ in rows),
        tuple(tuple(drifting) for *_, drifting in rows),
    )
