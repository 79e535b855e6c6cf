"""The numbers of a diagnosis, computed from its tables alone.

T is the training context, and L is the length that the model read. The paired ratio divides the model's perplexity by
the perplexity of the same model on the same targets, restarted T/2 to T tokens before them.
"""

from __future__ import annotations

from dataclasses import replace
from math import inf, log, nan, sqrt

import numpy as np
import polars as pl
from scipy.special import ndtr, stdtrit

from ssm.base.columns import maximum
from ssm.base.errors import TableError
from ssm.claims.estimate import LEVEL, resample
from ssm.claims.table_numbers import BIN, by_sequence, mean_loss, paired_log_ratio
from ssm.diagnosis.heads import measured_drift
from ssm.diagnosis.intervals import exponential, mean, share, wilson
from ssm.diagnosis.result import EffectiveLength, Facts, Interval, Memory, Readings, Recall, Solved, Tables
from ssm.specs.diagnosis import ENOUGH
from ssm.specs.tasks.ruler import RULER

DISTANCE = "total_variation"  # of Effective Remembrance (lg eq. 3)
RECENT = 16  # a state that forgets within T / RECENT tokens sees only the recent past
NARROW = 0.5  # of A_max - A_min (bn figure 6)
LITTLE = 1.01  # ratio of perplexities: a smaller gain is negligible (Khandelwal et al. 2018)
BEYOND = 1e3  # nats: replaces a loss that is not a number
# The upper ends that decide whether a model holds share their level among at least SHARING of them, because losses have
# heavy tails. We made the tails of real paired losses worse, or added rare failures. Then the upper end of 64 windows
# was below the true mean in 6.4% of all cases without sharing. It was in 3.2% when 4 share the level, in 2.4% when 8
# do, and in 2.0% when 12 do. 2.5% are allowed (tests/extension/coverage.py). A diagnosis of 256 windows at 16 contexts
# shares among 12.
SHARING = 12


def read(tables: Tables, facts: Facts) -> Readings:
    """All numbers of a diagnosis.

    Raises:
        TableError: the tables do not belong to these facts.
    """
    context, losses = facts.context, tables.position_loss
    kind = tables.length_class.row(0, named=True)
    answers, of_ruler, spelled = tables.accuracy, pl.col("group").is_in(RULER), tables.spelled_bytes
    return Readings(
        in_context=perplexity(losses, context // 2, context),
        far=perplexity(losses, far_start(losses), facts.length),
        ratios=ratios(losses, tables.restart_loss, context, facts.looks),
        failure=failure_position(losses, tables.restart_loss, facts.tolerance),
        not_finite_from=_not_finite_from(losses, tables.restart_loss),
        length_class=kind["class"],
        extends_from=kind["extends_from"],
        generalizes=kind["generalizes"],
        drift=None if tables.state_statistics is None else measured_drift(tables.state_statistics, context),
        remembrance=None
        if tables.effective_remembrance is None
        else remembrance_at(tables.effective_remembrance, context),
        passkey=() if tables.passkey is None else recalled(tables.passkey, "depth", "correct"),
        memory=None
        if tables.memory_length is None or tables.decay_range is None
        else memory(tables.memory_length, tables.decay_range, context, facts.length),
        needle=()
        if answers is None or "preferred" not in answers.columns
        else recalled(answers.filter(~of_ruler), "difficulty", "preferred"),
        ruler=() if answers is None else solved(answers.filter(of_ruler)),
        in_context_bits=None if spelled is None else bits_per_byte(losses, spelled, context // 2, context),
        far_bits=None if spelled is None else bits_per_byte(losses, spelled, far_start(losses), facts.length),
        effective_length=None if tables.context_loss is None else effective_length(tables.context_loss),
    )


def perplexity(position_loss: pl.DataFrame, start: int, stop: int) -> Interval:
    """Perplexity on the targets [start, stop): exp of the mean loss, with a Student t interval over sequences."""
    return exponential(mean_loss(position_loss, start, stop)["loss"].to_numpy())


def bits_per_byte(position_loss: pl.DataFrame, spelled: pl.DataFrame, start: int, stop: int) -> Interval:
    """Bits per byte of text on the targets [start, stop): loss in nats / ln 2 x tokens / bytes.

    The value does not depend on the tokenizer. It is the ratio of two sums over sequences, with a Student t interval
    (delta method).

    Args:
        spelled: table SPELLED_BYTES of the same sequences and bins.
    """
    nats = (stop - start) * mean_loss(position_loss, start, stop)["loss"].to_numpy()  # (sequences,)
    inside = spelled.filter(pl.col("position_from") >= start, pl.col("position_to") <= stop)
    size = inside.group_by("sequence").agg(pl.col("bytes").sum()).sort("sequence")["bytes"].to_numpy()
    ratio = nats.mean() / size.mean()
    return mean((ratio + (nats - ratio * size) / size.mean()) / log(2))


def far_start(position_loss: pl.DataFrame) -> int:
    """Start of the first bin inside the last quarter of the length, in tokens."""
    length = maximum(position_loss["position_to"])
    return min(start for start in position_loss["position_from"].unique() if 4 * start >= 3 * length)


def ratio_spans(restart_loss: pl.DataFrame, context: int) -> dict[int, int]:
    """The spans of targets of the paired ratios: end -> start, for the ends kT (k = 2, 4, ...) and L, in tokens.

    Args:
        restart_loss: all bins from T/2 on.
    """
    length = maximum(restart_loss["position_to"])
    spans, end = {}, 2 * context
    while end <= length:
        spans[end] = 3 * end // 4
        end *= 2
    return spans | {length: far_start(restart_loss)}


def ratios(
    position_loss: pl.DataFrame, restart_loss: pl.DataFrame, context: int, looks: int = 1
) -> dict[int, Interval]:
    """The paired ratio of perplexities on [3/4 kT, kT), by kT, and on the last quarter of L, by L.

    The intervals are Student t over sequences. They hold jointly with 95%, because they share the level (Bonferroni).
    From ENOUGH windows on, a model may be said to hold. Then upper ends share the level among at least SHARING.

    Args:
        restart_loss: all bins from T/2 on.
        looks: the largest number of times that these intervals decide whether to read more. All share the level.

    Raises:
        TableError: the tables have different sequences or bins.
    """
    spans = ratio_spans(restart_loss, context)
    shares = len(spans) * looks
    intervals = {}
    for end, start in spans.items():
        logarithms = paired_log_ratio(position_loss, restart_loss, end, start)["value"].to_numpy()  # (sequences,)
        ratio = exponential(logarithms, 1 - (1 - LEVEL) / shares)
        if len(logarithms) >= ENOUGH:
            ratio = replace(ratio, high=exponential(logarithms, 1 - (1 - LEVEL) / max(shares, SHARING)).high)
        intervals[end] = ratio
    return intervals


def excess(position_loss: pl.DataFrame, restart_loss: pl.DataFrame) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """The loss minus the restarted model's loss, in every bin where both are known.

    Returns:
        Starts and ends of the bins, (bins,) int64 each, and the differences in nats, (sequences, bins). A difference
        that is not finite is NaN.

    Raises:
        TableError: the tables have different sequences or bins.
    """
    both = restart_loss.join(position_loss, on=["sequence", *BIN], suffix="_full")
    bins = both.select(BIN).unique().sort(BIN)
    if both.height != restart_loss.height or both.height != bins.height * position_loss["sequence"].n_unique():
        raise TableError("the full and the restarted loss were measured on different sequences or bins")
    values = by_sequence(both.with_columns(value=pl.col("loss_full") - pl.col("loss")), BIN, "value")
    values = np.where(np.isfinite(values), values, nan)
    return bins[BIN[0]].to_numpy(), bins[BIN[1]].to_numpy(), values


def failure_position(position_loss: pl.DataFrame, restart_loss: pl.DataFrame, threshold: float) -> Interval | None:
    """The position from which the paired ratio stays above `threshold` until its maximum; None: it never does.

    The mean excess is interpolated between the centers of bins, linearly in log2 of the position. It is zero up to T,
    where the restarted model has read the same tokens. The interval is a bootstrap over sequences, with wider
    percentiles for few sequences (Hesterberg 2015, "expanded percentile"). An infinite end is beyond the measured
    length. A loss that is not a number exceeds every threshold.
    """
    starts, stops, values = excess(position_loss, restart_loss)
    lost = np.isnan(values).any(0)  # (bins,)
    values = np.nan_to_num(values, nan=BEYOND)

    def crossing(means: np.ndarray) -> np.ndarray:
        return _crossing(means, starts, stops, lost, threshold)

    position = float(crossing(values.mean(0, keepdims=True))[0])
    if position == inf:
        return None
    sequences = len(values)
    if sequences < 2:
        return Interval(position, -inf, inf)
    draws = np.sort(crossing(resample(values)[0]))  # (DRAWS,)
    tail = float(ndtr(sqrt(sequences / (sequences - 1)) * stdtrit(sequences - 1, (1 - LEVEL) / 2)))
    low, high = (float(draws[round(q * (len(draws) - 1))]) for q in (tail, 1 - tail))
    return Interval(position, min(low, position), max(high, position))


def remembrance_at(effective_remembrance: pl.DataFrame, context: int) -> Interval:
    """Effective Remembrance when only the last T tokens are kept: t = L - T (lg Def. 3.3, total variation).

    The value is interpolated linearly between the measured t. The interval is Student t over sequences, cut to [0, 1].
    """
    rows = effective_remembrance.filter(pl.col("distance") == DISTANCE)
    times = np.sort(rows["t"].unique().to_numpy())  # (t,)
    at = maximum(effective_remembrance["length"]) - context
    values = by_sequence(rows, ["t"], "value")  # (sequences, t)
    return share(np.array([np.interp(at, times, row) for row in values]))


def memory(memory_length: pl.DataFrame, decay_range: pl.DataFrame, context: int, length: int) -> Memory:
    """How long the states remember, as shares of all states. Intervals are Student t over sequences, cut to [0, 1].

    "Recent" means T / RECENT tokens. "Kept" means that a state still remembers after L tokens, rounded up to a power of
    two.
    """
    recent_tokens = max(1, context // RECENT)
    kept_tokens = min(1 << (length - 1).bit_length(), maximum(memory_length["tokens"]))
    of_all = memory_length.filter(pl.col("layer") == 0)
    by = {tokens: of_all.filter(pl.col("tokens") == tokens) for tokens in (recent_tokens, kept_tokens)}
    narrow = decay_range.filter((pl.col("layer") == 0) & (pl.col("threshold") == NARROW))
    return Memory(
        recent_tokens,
        share(by[recent_tokens]["share"].to_numpy()),
        kept_tokens,
        share(1 - by[kept_tokens]["share"].to_numpy()),
        share(narrow["share"].to_numpy()),
    )


def effective_length(context_loss: pl.DataFrame) -> EffectiveLength:
    """The effective context length, after Dai et al. (Transformer-XL, 2019, Section 4.3).

    They search the longest length up to which a longer context lowers the loss by more than a threshold. Our threshold
    is the interval of the gain. The gain of n is the perplexity after n to 2n tokens, divided by the perplexity after
    2n to 4n tokens (the last one: after L/2 to 3/4 L). Both are of the same model and targets. Intervals are Student t
    over sequences, and hold jointly with 95% (Bonferroni).

    `at_least` is the largest n with a gain that is certainly above 1: text more than n tokens back lowers the loss.
    `at_most` is the smallest n above it from which all gains are certainly below LITTLE. It needs a measured gain
    beyond it.

    Two other measures have similar names. RULER's "effective length" is the longest length at which a model solves
    RULER's tasks as well as a reference model at 4k. Effective Remembrance (lg Definition 3.3) is about predictions,
    not losses.

    Args:
        context_loss: the table of that name.
    """
    contexts = sorted(context_loss["context"].unique())
    losses = by_sequence(context_loss, ["context"], "loss")  # (sequences, contexts)
    level = 1 - (1 - LEVEL) / (len(contexts) - 1)
    gains = {n: exponential(losses[:, i] - losses[:, i + 1], level) for i, n in enumerate(contexts[:-1])}
    at_least = max((n for n, gain in gains.items() if gain.low > 1), default=None)
    at_most = None
    for n in reversed(gains):
        if not gains[n].high < LITTLE:
            break
        at_most = n if n != at_least else 2 * n if 2 * n in gains else None
        if n == at_least:
            break
    return EffectiveLength(at_least, at_most, gains)


def recalled(table: pl.DataFrame, depth: str, found: str) -> tuple[Recall, ...]:
    """The share of right answers at each length and depth.

    Args:
        depth: name of the column of depths.
        found: name of the column of booleans.
    """
    cells = table.group_by("length", depth).agg(pl.col(found).sum(), trials=pl.len())
    return tuple(
        Recall(row["length"], row[depth], row["trials"], wilson(row[found], row["trials"]))
        for row in cells.sort("length", depth).iter_rows(named=True)
    )


def solved(accuracy: pl.DataFrame) -> tuple[Solved, ...]:
    """The share of RULER's prompts that the model answers by greedy decoding, by task and length."""
    cells = accuracy.group_by("group", "length").agg(pl.col("generated_all").sum(), trials=pl.len())
    rows = sorted(cells.iter_rows(named=True), key=lambda row: (RULER.index(row["group"]), row["length"]))
    return tuple(
        Solved(row["group"], row["length"], row["trials"], wilson(row["generated_all"], row["trials"])) for row in rows
    )


def _crossing(
    curves: np.ndarray, starts: np.ndarray, stops: np.ndarray, lost: np.ndarray, threshold: float
) -> np.ndarray:
    """Where each mean excess last rises above log(threshold) before its maximum, in tokens; inf: it never does.

    Args:
        curves: (curves, bins), finite.
        starts, stops: (bins,) tokens, from T/2 on.
        lost: (bins,) whether some loss is not a number. A rise in such a bin counts from the bin's start.
    """
    level, places = np.log(threshold), np.log2((starts + stops) / 2)  # (bins,)
    worst = curves.argmax(1)  # (curves,)
    below = (curves <= level) & (np.arange(len(starts)) < worst[:, None])
    before = np.where(below.any(1), len(starts) - 1 - below[:, ::-1].argmax(1), -1)  # (curves,); -1: never below
    after = np.minimum(before + 1, len(starts) - 1)
    rows, before = np.arange(len(curves)), np.maximum(before, 0)
    rise = curves[rows, after] - curves[rows, before]
    part = np.where(rise > 0, (level - curves[rows, before]) / np.where(rise > 0, rise, 1.0), 0.0)
    part = np.where(below.any(1), np.clip(part, 0.0, 1.0), 0.0)
    place = places[before] + part * (places[after] - places[before])
    positions = np.where(lost[after], starts[after], np.maximum(2.0**place, 2 * starts[0]))
    return np.where(curves[rows, worst] > level, positions, inf)


def _not_finite_from(*losses: pl.DataFrame) -> int | None:
    lost = pl.concat(losses).filter(~pl.col("loss").fill_null(nan).is_finite())
    return min(lost["position_from"].to_list(), default=None)
