"""The numbers of a diagnosis, read off its tables. polars and NumPy only.

T is the context that the model was trained on, L the length that it was read up to. The paired ratio compares its
perplexity with that of the same model restarted T/2 to T tokens before the same targets.
"""

from __future__ import annotations

from dataclasses import replace
from math import inf, log, nan, sqrt

import numpy as np
import polars as pl
from scipy.special import ndtr, stdtrit

from ssm.base.columns import maximum
from ssm.base.curves import BIN, mean_loss, paired_log_ratio
from ssm.base.errors import TableError
from ssm.claims.estimate import LEVEL, resample
from ssm.claims.panel_tables import by_sequence
from ssm.diagnosis.effective_length import effective_length
from ssm.diagnosis.heads import drift
from ssm.diagnosis.intervals import exponential, mean, share, wilson
from ssm.diagnosis.result import Facts, Interval, Memory, Readings, Recall, Solved, Tables
from ssm.specs.diagnosis import ENOUGH
from ssm.specs.tasks.ruler import RULER

DISTANCE = "total_variation"  # of Effective Remembrance (lg eq. 3)
RECENT = 16  # a state that forgets within this part of the context sees the recent past alone
NARROW = 0.5  # of A_max - A_min (bn figure 6)
BEYOND = 1e3  # nats: what stands for a loss that is not a number
# A model holds by upper ends that share their level among so many at least. Losses have heavy tails: where the paired
# losses of real models get worse tails or rare failures, an upper end of 64 windows lies below the true mean in 6.4% of
# all cases where it has the level alone, in 3.2% where 4 share it, in 2.4% where 8 do and in 2.0% where 12 do, as in a
# diagnosis of 256 windows at 16 contexts; 2.5 are allowed (tests/extension/coverage.py).
SHARING = 12


def read(tables: Tables, facts: Facts) -> Readings:
    """Every number of a diagnosis.

    Raises:
        TableError: the tables are not those of a diagnosis of these facts.
    """
    context, losses = facts.context, tables.position_loss
    kind = tables.length_class.row(0, named=True)
    asked, of_ruler, spelled = tables.accuracy, pl.col("group").is_in(RULER), tables.spelled_bytes
    return Readings(
        in_context=perplexity(losses, context // 2, context),
        far=perplexity(losses, far_start(losses), facts.length),
        ratios=ratios(losses, tables.restart_loss, context, facts.looks),
        failure=failure_position(losses, tables.restart_loss, facts.tolerance),
        not_finite_from=_not_finite_from(losses, tables.restart_loss),
        length_class=kind["class"],
        extends_from=kind["extends_from"],
        generalizes=kind["generalizes"],
        drift=None if tables.state_statistics is None else drift(tables.state_statistics, context),
        remembrance=None
        if tables.effective_remembrance is None
        else remembrance_at(tables.effective_remembrance, context),
        passkey=() if tables.passkey is None else recalled(tables.passkey, "depth", "correct"),
        memory=None
        if tables.memory_length is None or tables.decay_range is None
        else memory(tables.memory_length, tables.decay_range, context, facts.length),
        needle=()
        if asked is None or "preferred" not in asked.columns
        else recalled(asked.filter(~of_ruler), "difficulty", "preferred"),
        ruler=() if asked is None else solved(asked.filter(of_ruler)),
        in_context_bits=None if spelled is None else bits_per_byte(losses, spelled, context // 2, context),
        far_bits=None if spelled is None else bits_per_byte(losses, spelled, far_start(losses), facts.length),
        effective_length=None if tables.context_loss is None else effective_length(tables.context_loss),
    )


def perplexity(position_loss: pl.DataFrame, start: int, stop: int) -> Interval:
    """Perplexity over the targets [start, stop): exp of the mean loss, Student t over sequences."""
    return exponential(mean_loss(position_loss, start, stop)["loss"].to_numpy())


def bits_per_byte(position_loss: pl.DataFrame, spelled: pl.DataFrame, start: int, stop: int) -> Interval:
    """Bits that a byte of text costs at the targets [start, stop): their losses over the bytes that they spell.

    It does not depend on how a tokenizer cuts the text: loss in nats / ln 2 x tokens / bytes. The ratio of the two sums
    over sequences; its interval is Student t (delta method).

    Args:
        spelled: in the schema SPELLED_BYTES, of the same sequences and bins.
    """
    nats = (stop - start) * mean_loss(position_loss, start, stop)["loss"].to_numpy()  # (sequences,)
    inside = spelled.filter(pl.col("position_from") >= start, pl.col("position_to") <= stop)
    size = inside.group_by("sequence").agg(pl.col("bytes").sum()).sort("sequence")["bytes"].to_numpy()
    ratio = nats.mean() / size.mean()
    return mean((ratio + (nats - ratio * size) / size.mean()) / log(2))


def far_start(position_loss: pl.DataFrame) -> int:
    """Where the last quarter of the length begins, or the first bin after that."""
    length = maximum(position_loss["position_to"])
    return min(start for start in position_loss["position_from"].unique() if 4 * start >= 3 * length)


def ratio_spans(restart_loss: pl.DataFrame, context: int) -> dict[int, int]:
    """Where the paired ratio is read: by position kT, k = 2, 4, ..., and L, where its targets begin.

    Args:
        restart_loss: of all bins from T/2 on.
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
    """The paired ratio of perplexities over [3/4 kT, kT), by kT, and over the last quarter of L, by L.

    The intervals are Student t over sequences. Together they hold with 95%: they share the level (Bonferroni). From
    ENOUGH windows on, where a model may be said to hold, upper ends share it among SHARING at least.

    Args:
        restart_loss: of all bins from T/2 on.
        looks: how often, at most, these intervals are looked at to decide whether to go on: they share the level too.

    Raises:
        TableError: the tables hold other sequences or bins.
    """
    spans = ratio_spans(restart_loss, context)
    shares = len(spans) * looks
    found = {}
    for end, start in spans.items():
        logarithms = paired_log_ratio(position_loss, restart_loss, end, start)["value"].to_numpy()  # (sequences,)
        ratio = exponential(logarithms, 1 - (1 - LEVEL) / shares)
        if len(logarithms) >= ENOUGH:
            ratio = replace(ratio, high=exponential(logarithms, 1 - (1 - LEVEL) / max(shares, SHARING)).high)
        found[end] = ratio
    return found


def excess(position_loss: pl.DataFrame, restart_loss: pl.DataFrame) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Loss minus the restarted model's in every bin where both are known.

    Returns:
        the bins' starts and ends, (bins,) int64 each, and nats (sequences, bins); what is no number is NaN.

    Raises:
        TableError: the tables hold other sequences or bins.
    """
    both = restart_loss.join(position_loss, on=["sequence", *BIN], suffix="_full")
    bins = both.select(BIN).unique().sort(BIN)
    if both.height != restart_loss.height or both.height != bins.height * position_loss["sequence"].n_unique():
        raise TableError("the full and the restarted loss were measured on different sequences or bins")
    values = by_sequence(both.with_columns(value=pl.col("loss_full") - pl.col("loss")), BIN, "value")
    values = np.where(np.isfinite(values), values, nan)
    return bins[BIN[0]].to_numpy(), bins[BIN[1]].to_numpy(), values


def failure_position(position_loss: pl.DataFrame, restart_loss: pl.DataFrame, threshold: float) -> Interval | None:
    """From which position on the paired ratio exceeds `threshold`, up to where it is worst; None: nowhere.

    Between the middles of bins the mean excess runs linearly in log2 of the position, and up to T it is zero: nothing
    is read for longer than the restarted model. The interval is a bootstrap over
    sequences, its percentiles widened for few of them (Hesterberg 2015, "expanded percentile"). An end that is infinite
    lies further than was measured. A loss that is not a number exceeds every threshold.
    """
    starts, stops, values = excess(position_loss, restart_loss)
    lost = np.isnan(values).any(0)  # (bins,)
    values = np.nan_to_num(values, nan=BEYOND)

    def crossing(means: np.ndarray) -> np.ndarray:
        return _crossing(means, starts, stops, lost, threshold)

    found = float(crossing(values.mean(0, keepdims=True))[0])
    if found == inf:
        return None
    sequences = len(values)
    if sequences < 2:
        return Interval(found, -inf, inf)
    draws = np.sort(crossing(resample(values)[0]))  # (DRAWS,)
    tail = float(ndtr(sqrt(sequences / (sequences - 1)) * stdtrit(sequences - 1, (1 - LEVEL) / 2)))
    low, high = (float(draws[round(q * (len(draws) - 1))]) for q in (tail, 1 - tail))
    return Interval(found, min(low, found), max(high, found))


def remembrance_at(effective_remembrance: pl.DataFrame, context: int) -> Interval:
    """Effective Remembrance at t = L - T (lg Def. 3.3, total variation): with only the last T tokens kept.

    Linear between the t that were measured; Student t over sequences, cut to [0, 1].
    """
    rows = effective_remembrance.filter(pl.col("distance") == DISTANCE)
    times = np.sort(rows["t"].unique().to_numpy())  # (t,)
    wanted = maximum(effective_remembrance["length"]) - context
    values = by_sequence(rows, ["t"], "value")  # (sequences, t)
    return share(np.array([np.interp(wanted, times, row) for row in values]))


def memory(memory_length: pl.DataFrame, decay_range: pl.DataFrame, context: int, length: int) -> Memory:
    """Shares of all states; Student t over sequences, cut to [0, 1].

    Recent is a sixteenth of the context. What is kept is kept over the whole length, or the next power of two.
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


def recalled(table: pl.DataFrame, depth: str, found: str) -> tuple[Recall, ...]:
    """Which part is found of what stood at each length and depth; two columns, by their names."""
    cells = table.group_by("length", depth).agg(pl.col(found).sum(), trials=pl.len())
    return tuple(
        Recall(row["length"], row[depth], row["trials"], wilson(row[found], row["trials"]))
        for row in cells.sort("length", depth).iter_rows(named=True)
    )


def solved(accuracy: pl.DataFrame) -> tuple[Solved, ...]:
    """Which part of RULER's prompts the model answers itself, by task, in their order, and length."""
    cells = accuracy.group_by("group", "length").agg(pl.col("generated_all").sum(), trials=pl.len())
    rows = sorted(cells.iter_rows(named=True), key=lambda row: (RULER.index(row["group"]), row["length"]))
    return tuple(
        Solved(row["group"], row["length"], row["trials"], wilson(row["generated_all"], row["trials"])) for row in rows
    )


def _crossing(
    curves: np.ndarray, starts: np.ndarray, stops: np.ndarray, lost: np.ndarray, threshold: float
) -> np.ndarray:
    """Where each mean excess last rises above log(threshold) before its largest value, in tokens; inf: it never does.

    Args:
        curves: (curves, bins), finite.
        starts, stops: (bins,) tokens, from T/2 on.
        lost: (bins,) whether some loss is not a number: who rises in such a bin rises at its start.
    """
    level, places = np.log(threshold), np.log2((starts + stops) / 2)  # (bins,)
    worst = curves.argmax(1)  # (curves,)
    below = (curves <= level) & (np.arange(len(starts)) < worst[:, None])
    before = np.where(below.any(1), len(starts) - 1 - below[:, ::-1].argmax(1), -1)  # (curves,) -1: never below
    after = np.minimum(before + 1, len(starts) - 1)
    rows, before = np.arange(len(curves)), np.maximum(before, 0)
    rise = curves[rows, after] - curves[rows, before]
    part = np.where(rise > 0, (level - curves[rows, before]) / np.where(rise > 0, rise, 1.0), 0.0)
    part = np.where(below.any(1), np.clip(part, 0.0, 1.0), 0.0)
    place = places[before] + part * (places[after] - places[before])
    found = np.where(lost[after], starts[after], np.maximum(2.0**place, 2 * starts[0]))
    return np.where(curves[rows, worst] > level, found, inf)


def _not_finite_from(*losses: pl.DataFrame) -> int | None:
    lost = pl.concat(losses).filter(~pl.col("loss").fill_null(nan).is_finite())
    return min(lost["position_from"].to_list(), default=None)
