"""Compare two diagnoses, before and after an extension, on the windows that both have read."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import polars as pl

from ssm.claims.table_numbers import mean_loss, paired_log_ratio
from ssm.diagnosis.intervals import cautious, exponential
from ssm.diagnosis.readings import far_start, ratio_spans
from ssm.diagnosis.result import Diagnosis, Interval, Tables


@dataclass(frozen=True)
class Change:
    """A number before and after, and their ratio, paired by window. Each has its own 95% interval."""

    before: Interval  # Student t
    after: Interval  # Student t
    factor: Interval  # after / before, `cautious`


@dataclass(frozen=True)
class Comparison:
    """How one diagnosis differs from another, on `sequences` windows."""

    sequences: int
    in_context: Change  # perplexity at [T/2, T)
    far: Change  # perplexity on the last quarter of the length
    ratios: dict[int, Change]  # the paired ratio, by position


def compare(before: Diagnosis, after: Diagnosis, sequences: int | None = None) -> Comparison:
    """How the second diagnosis differs from the first.

    Args:
        sequences: the number of windows to compare; None: all that both have read.

    Raises:
        TableError: the diagnoses have different positions.
    """
    sequences = sequences or min(before.facts.sequences, after.facts.sequences)
    context, length = before.facts.context, before.facts.length
    both = [first_windows(diagnosis.tables, sequences) for diagnosis in (before, after)]
    far = far_start(both[0].position_loss)
    return Comparison(
        sequences,
        in_context=_change(*(_loss(tables, context // 2, context) for tables in both)),
        far=_change(*(_loss(tables, far, length) for tables in both)),
        ratios={
            stop: _change(*(_excess(tables, start, stop) for tables in both))
            for stop, start in ratio_spans(both[0].restart_loss, context).items()
        },
    )


def first_windows(tables: Tables, sequences: int) -> Tables:
    """The tables with the losses of the first windows only."""
    known = pl.col("sequence") < sequences
    return replace(
        tables, position_loss=tables.position_loss.filter(known), restart_loss=tables.restart_loss.filter(known)
    )


def _loss(tables: Tables, start: int, stop: int) -> np.ndarray:
    """(sequences,) nats per token."""
    return mean_loss(tables.position_loss, start, stop)["loss"].to_numpy()


def _excess(tables: Tables, start: int, stop: int) -> np.ndarray:
    """(sequences,) nats per token more than the restarted model."""
    return paired_log_ratio(tables.position_loss, tables.restart_loss, stop, start)["value"].to_numpy()


def _change(before: np.ndarray, after: np.ndarray) -> Change:
    return Change(exponential(before), exponential(after), cautious(after - before))
