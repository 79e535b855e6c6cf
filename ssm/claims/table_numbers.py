"""Numbers from result tables, for figures and claims.

All functions are pure functions of tables (their schemas are in the specs of measurements). Losses are in nats per
token. A bin [position_from, position_to) holds the targets that are predicted at these positions. Means over bins are
weighted by tokens. A NaN in a table stays NaN in the results.
"""

from __future__ import annotations

import numpy as np

from ssm.base.errors import TableError, nearest
from ssm.base.lazy import polars as pl

BIN = ["position_from", "position_to"]


def mean_loss(position_loss: pl.DataFrame, start: int, stop: int) -> pl.DataFrame:
    """Mean loss (nats per token) of every sequence; `mean_over` of a `position_loss` or `restart_loss` table."""
    return mean_over(position_loss, "loss", start, stop)


def mean_over(binned: pl.DataFrame, column: str, start: int, stop: int, sample: str = "sequence") -> pl.DataFrame:
    """Mean value of every sequence over the positions [start, stop), each token counted once.

    Args:
        binned: a table of values by sequence and bin of positions.
        column: the values; True counts as 1.
        sample: what the table has for sequences.

    Returns:
        Columns `sample` and `column`, sorted by `sample`.

    Raises:
        TableError: the table's bins do not tile [start, stop) exactly.
    """
    inside = binned.filter(pl.col("position_from") >= start, pl.col("position_to") <= stop)
    bins = inside.select(BIN).unique().sort(BIN)
    edges = [start, *bins["position_to"]]
    everyone = binned[sample].n_unique()
    tiled = start < stop == edges[-1] and bins["position_from"].to_list() == edges[:-1]
    if not tiled or inside.height != bins.height * everyone:
        raise TableError(
            f"the bins of this {column} table do not tile the positions {start} to {stop} of every sequence"
        )
    tokens = pl.col("position_to") - pl.col("position_from")
    value = pl.col(column).cast(pl.Float64).fill_null(float("nan"))
    return inside.group_by(sample).agg(((value * tokens).sum() / tokens.sum()).alias(column)).sort(sample)


def paired_log_ratio(
    position_loss: pl.DataFrame, restart_loss: pl.DataFrame, stop: int, start: int | None = None
) -> pl.DataFrame:
    """Loss with the full history minus loss of the restarted model, on the same targets [start, stop).

    Args:
        position_loss: the table of the arm that reads the full history.
        restart_loss: the table of the restarted arm: the base for Rbase, the same arm for Rown.
        stop: end of the targets, in tokens.
        start: their begin; None: 3/4 of `stop`, which must then be a multiple of 4.

    Returns:
        Columns sequence, value (nats: the logarithm of the paired ratio of perplexities), sorted by sequence.

    Raises:
        TableError: no such bins, or the two tables do not hold the same sequences.
    """
    start = 3 * stop // 4 if start is None else start
    full = mean_loss(position_loss, start, stop)
    restarted = mean_loss(restart_loss, start, stop)
    if full["sequence"].to_list() != restarted["sequence"].to_list():
        raise TableError("the full and the restarted loss were measured on different sequences: they cannot be paired")
    return full.select("sequence", value=pl.col("loss") - restarted["loss"])


def by_sequence(table: pl.DataFrame, keys: list[str], value: str) -> np.ndarray:
    """Values as a matrix (S, K): one row per sequence, one column per combination of `keys`, both sorted."""
    column = table.sort("sequence", *keys)[value].fill_null(float("nan")).to_numpy()
    return column.reshape(table["sequence"].n_unique(), -1)


def position_curve(position_loss: pl.DataFrame) -> pl.DataFrame:
    """Loss against position (lg Definition 3.1): mean over sequences in every bin.

    Returns:
        Columns position_from, position_to, loss (nats per token), error (standard error over sequences; NaN for one
        sequence), sorted by position.
    """
    return _over_sequences(position_loss, BIN, "loss")


def ratio_positions(restart_loss: pl.DataFrame) -> list[int]:
    """The positions kT, ascending, at which a `restart_loss` table lets the paired ratio be read.

    Those whose last quarter begins with a bin; of a table of all bins, the powers of two.
    """
    starts = set(restart_loss["position_from"])
    return sorted(end for end in restart_loss["position_to"].unique() if end % 4 == 0 and 3 * end // 4 in starts)


def remembrance_curve(effective_remembrance: pl.DataFrame, distance: str) -> pl.DataFrame:
    """Effective Remembrance against t (lg Definition 3.3): mean over sequences.

    Returns:
        Columns t, value (0 to 1), error (standard error over sequences), sorted by t.

    Raises:
        TableError: the table does not have this distance.
    """
    rows = effective_remembrance.filter(pl.col("distance") == distance)
    if rows.is_empty():
        hint = nearest(distance, effective_remembrance["distance"].unique())
        raise TableError(f"this effective_remembrance table has no distance '{distance}'; {hint}")
    return _over_sequences(rows, ["t"], "value")


def state_norm_curve(state_statistics: pl.DataFrame) -> pl.DataFrame:
    """Norm of the whole state (all layers and heads; lg figure 4) against position: mean over sequences.

    Returns:
        Columns position, norm, error (standard error over sequences), sorted by position.
    """
    return _over_sequences(state_statistics.filter(pl.col("layer") == -1, pl.col("head") == -1), ["position"], "norm")


def state_norm_at(state_statistics: pl.DataFrame, position: int) -> pl.DataFrame:
    """Norm of the whole state after `position` tokens.

    Returns:
        Columns sequence, norm, sorted by sequence.

    Raises:
        TableError: the state was not measured at this position.
    """
    whole = state_statistics.filter(pl.col("layer") == -1, pl.col("head") == -1)
    return _at(whole, position).select("sequence", "norm").sort("sequence")


def head_std_curve(state_statistics: pl.DataFrame) -> pl.DataFrame:
    """Standard deviation of the state of every single head (lg figure 9) against position: mean over sequences.

    Returns:
        Columns layer, head, position, std, error (standard error over sequences), sorted.
    """
    heads = state_statistics.filter(pl.col("layer") >= 0, pl.col("head") >= 0)
    return _over_sequences(heads, ["layer", "head", "position"], "std")


def positions_of_growth(state_statistics: pl.DataFrame, context: int) -> tuple[int, int]:
    """The first and last position of growth beyond the context: T, or the last measured one before it, and the end.

    If no position is at most T, the first one is the first measured position.
    """
    positions = sorted(state_statistics["position"].unique())
    return max((position for position in positions if position <= context), default=positions[0]), positions[-1]


def head_std_growth(state_statistics: pl.DataFrame, start: int, stop: int) -> pl.DataFrame:
    """Growth of the standard deviation of every head's state (mean over sequences) from `start` to `stop`.

    Returns:
        Columns layer, head, growth (the ratio), sorted by layer and head.

    Raises:
        TableError: the state was not measured at one of the positions.
    """
    curve = head_std_curve(state_statistics)
    early, late = _at(curve, start), _at(curve, stop)
    joined = early.join(late, on=["layer", "head"], suffix="_late").sort("layer", "head")
    return joined.select("layer", "head", growth=pl.col("std_late") / pl.col("std"))


def _over_sequences(table: pl.DataFrame, keys: list[str], value: str) -> pl.DataFrame:
    """Mean of `value` over the sequences, and its standard error, for each combination of `keys`."""
    column = pl.col(value).fill_null(float("nan"))
    error = (column.std() / column.len().sqrt()).fill_null(float("nan")).alias("error")
    return table.group_by(keys).agg(column.mean(), error).sort(keys)


def _at(table: pl.DataFrame, position: int) -> pl.DataFrame:
    rows = table.filter(pl.col("position") == position)
    if rows.is_empty():
        measured = ", ".join(str(p) for p in sorted(table["position"].unique()))
        raise TableError(f"the state was not measured at position {position}; measured at {measured or 'none'}")
    return rows
