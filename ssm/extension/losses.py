"""The losses by which `ssm extend` chooses weights and judges them, computed from tables."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

import polars as pl
from pydantic import TypeAdapter

from ssm.base.columns import maximum
from ssm.claims.table_numbers import mean_loss, paired_log_ratio
from ssm.diagnosis.comparison import compare, first_windows
from ssm.diagnosis.intervals import cautious
from ssm.diagnosis.readings import far_start
from ssm.diagnosis.result import Diagnosis, Interval


@dataclass(frozen=True)
class Losses:
    """Means over all sequences, nats per token."""

    in_context: float  # of the restarted model, T/2 to T tokens after its start, on all targets from T/2 on
    far_perplexity: float  # on the last quarter of the length
    paired_ratio: float  # far_perplexity minus the restarted model's loss on the same targets


def losses_of(position_loss: pl.DataFrame, restart_loss: pl.DataFrame, context: int) -> Losses:
    """The losses in a model's tables.

    `in_context` uses the restarted model, because the targets at [T/2, T) of every window would be too few: one of
    2 L/T.

    Args:
        restart_loss: all bins from T/2 on.
        context: T, a power of two.

    Raises:
        TableError: the tables have different sequences or positions.
    """
    length, far = maximum(position_loss["position_to"]), far_start(position_loss)
    return Losses(
        in_context=_mean(mean_loss(restart_loss, context // 2, length)["loss"]),
        far_perplexity=_mean(mean_loss(position_loss, far, length)["loss"]),
        paired_ratio=_mean(paired_log_ratio(position_loss, restart_loss, length, far)["value"]),
    )


@dataclass(frozen=True)
class Factors:
    """Numbers after the extension divided by those before it, paired on the windows that both diagnoses have read."""

    sequences: int
    in_context: Interval  # perplexity, as in `Losses.in_context`
    far_perplexity: Interval  # on the last quarter of the length
    paired_ratio: Interval  # at the length

    def as_json(self) -> dict[str, Any]:
        """Plain data. Values and ends that are not finite become null."""
        return json.loads(TypeAdapter(Factors).dump_json(self))


def factors_between(before: Diagnosis, after: Diagnosis) -> Factors:
    """How the second diagnosis of a text differs from the first.

    Raises:
        TableError: the diagnoses have different positions.
    """
    context, length = before.facts.context, before.facts.length
    change = compare(before, after)
    old, new = (
        mean_loss(first_windows(arm.tables, change.sequences).restart_loss, context // 2, length)["loss"].to_numpy()
        for arm in (before, after)
    )
    return Factors(
        change.sequences,
        in_context=cautious(new - old),
        far_perplexity=change.far.factor,
        paired_ratio=change.ratios[length].factor,
    )


def _mean(values: pl.Series) -> float:
    return float(values.to_numpy().mean())
