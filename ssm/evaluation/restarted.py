"""Losses of a model that restarts at given places in its windows."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from torch import Tensor

from ssm.base.progress import Progress
from ssm.data.batches import HeldOutWindows
from ssm.evaluation.evaluation_context import EvaluationContext
from ssm.evaluation.stream import segments
from ssm.models.logits import cross_entropy, token_values


def restarted(
    ctx: EvaluationContext, windows: HeldOutWindows, offsets: np.ndarray, before: int, scored: int, progress: Progress
) -> Iterator[tuple[np.ndarray, np.ndarray, Tensor]]:
    """The losses on the targets `before` to `before + scored` tokens after a restart, segment by segment.

    Args:
        windows: every window is read from every offset.
        offsets: (starts,) int64 places in a window where the model restarts from the zero state.

    Yields:
        numbers of the windows (B,), positions of the targets in them (B, S), losses in nats (B, S).
    """
    length = before + scored
    positions = (windows.positions[:, None] + offsets).flatten()  # window by window
    for segment in segments(ctx, HeldOutWindows(windows.split, positions, length), length):
        progress.advance(segment.targets.numel())
        read = max(0, before - segment.start)  # tokens of the segment that are not scored
        if segment.start + read >= segment.stop:
            continue
        losses = token_values(ctx.model, segment.hidden[:, read:], segment.targets[:, read:], cross_entropy)
        numbers, starts = np.divmod(segment.rows.numpy(), len(offsets))  # (B,)
        yield numbers, offsets[starts, None] + np.arange(segment.start + read, segment.stop), losses
