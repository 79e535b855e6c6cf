"""The three numbers that checkpoints are chosen by, read off the tables of a model. Pure."""

from __future__ import annotations

from dataclasses import dataclass

import polars as pl

from ssm.base.curves import mean_loss, paired_log_ratio
from ssm.diagnosis.readings import far_start


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
    length, far = int(position_loss["position_to"].max()), far_start(position_loss)  # type: ignore[arg-type]
    return Losses(
        in_context=_mean(mean_loss(restart_loss, context // 2, length)["loss"]),
        far_perplexity=_mean(mean_loss(position_loss, far, length)["loss"]),
        paired_ratio=_mean(paired_log_ratio(position_loss, restart_loss, length, far)["value"]),
    )


def _mean(values: pl.Series) -> float:
    return float(values.to_numpy().mean())
