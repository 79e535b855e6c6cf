"""The numbers that checkpoints are chosen and judged by, read off the tables of models. Pure."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

import polars as pl
from pydantic import TypeAdapter

from ssm.base.columns import maximum
from ssm.base.curves import mean_loss, paired_log_ratio
from ssm.diagnosis.comparison import compare, first_windows
from ssm.diagnosis.intervals import cautious
from ssm.diagnosis.readings import far_start
from ssm.diagnosis.result import Diagnosis, Interval


@dataclass(frozen=True)
class Losses:
    """Means over all sequences, nats per token."""

    in_context: (
        float  # of the restarted model, T/2 to T tokens from its start, at all targets of the windows from T/2 on
    )
    far_perplexity: float  # at the last quarter of the length
    paired_ratio: float  # how much of that is above the restarted model's


def losses_of(position_loss: pl.DataFrame, restart_loss: pl.DataFrame, context: int) -> Losses:
    """Read the losses off a model's tables.

    The targets at [T/2, T) of every window alone would be too few: one in 2 L/T of all.

    Args:
        restart_loss: in every bin from T/2 on.
        context: T, a power of two.

    Raises:
        TableError: the tables are of other sequences or positions than these.
    """
    length, far = maximum(position_loss["position_to"]), far_start(position_loss)
    return Losses(
        in_context=_mean(mean_loss(restart_loss, context // 2, length)["loss"]),
        far_perplexity=_mean(mean_loss(position_loss, far, length)["loss"]),
        paired_ratio=_mean(paired_log_ratio(position_loss, restart_loss, length, far)["value"]),
    )


@dataclass(frozen=True)
class Factors:
    """Numbers after, divided by the same before: by sequence, on the windows that both diagnoses have read."""

    sequences: int
    in_context: Interval  # perplexity, as of `Losses.in_context`
    far_perplexity: Interval  # at the last quarter of the length
    paired_ratio: Interval  # at the length

    def as_json(self) -> dict[str, Any]:
        """Plain data; what is no number, and an end that an interval does not have, are null."""
        return json.loads(TypeAdapter(Factors).dump_json(self))


def factors_between(before: Diagnosis, after: Diagnosis) -> Factors:
    """How the second diagnosis of a text differs from the first.

    Raises:
        TableError: they are of other positions.
    """
    context, length = before.facts.context, before.facts.length
    change = compare(before, after)
    old, new = (
        mean_loss(first_windows(found.tables, change.sequences).restart_loss, context // 2, length)["loss"].to_numpy()
        for found in (before, after)
    )
    return Factors(
        change.sequences,
        in_context=cautious(new - old),
        far_perplexity=change.far.factor,
        paired_ratio=change.ratios[length].factor,
    )


def _mean(values: pl.Series) -> float:
    return float(values.to_numpy().mean())
