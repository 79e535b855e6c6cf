"""The loss on the same targets when the model starts anew T/2 to T tokens before each of them.

The paired ratio exp(position_loss - restart_loss) compares a model that carries a long past with one that meets the
same targets inside the context it was trained on: the wobble of the text itself cancels.
"""

from __future__ import annotations

import numpy as np
import polars as pl
import torch

from ssm.evaluation.bins import octaves
from ssm.evaluation.position_loss import binned_table
from ssm.evaluation.stream import FORWARD_TOKENS, token_losses
from ssm.evaluation.subject import Subject
from ssm.specs.measurement import RestartLoss


def restart_loss(spec: RestartLoss, subject: Subject) -> pl.DataFrame:
    """Mean loss by sequence at [3/4 kT, kT), k = 1, 2, 4 ..., in the schema RESTART_LOSS."""
    T, half = spec.context, spec.context // 2
    windows = subject.windows(spec.sequences, spec.length, spec.seed)
    multiples = octaves(T, spec.length)
    losses = torch.zeros(spec.sequences, len(multiples), dtype=torch.float64)
    at_once = max(1, FORWARD_TOKENS[subject.device.type] // T)  # restarted windows a forward pass
    with subject.progress(spec.sequences, sum(max(1, k // 2) for k in multiples), "windows") as progress:
        for column, k in enumerate(multiples):
            # Windows of T tokens, a new one every T/2: the second half of each holds the targets.
            first = 0 if k == 1 else 3 * k * T // 4 - half
            per_row = max(1, k // 2)
            for rows in subject.groups(spec.sequences, max(1, at_once // per_row)):
                inputs, targets = windows.read(rows.numpy(), first, k * T)
                inputs, targets = (x.unfold(1, T, half).flatten(0, 1) for x in (inputs, targets))  # (B * k/2, T)
                parts = [
                    _second_half(subject, part, wanted)
                    for part, wanted in zip(inputs.split(at_once), targets.split(at_once), strict=True)
                ]
                halves = torch.cat(parts).double().view(len(rows), per_row, half)  # (B, k/2, T/2)
                if k == 1:
                    halves = halves[..., half // 2 :]  # [3/4 T, T) is half of the only window's second half
                losses[rows, column] = halves.mean((1, 2))
                progress.advance(len(rows) * per_row)
    ends = np.array([k * T for k in multiples], dtype=np.int64)
    losses = subject.team.total(losses)  # zero but where a process read
    return binned_table(losses, ends * 3 // 4, ends)


def _second_half(subject: Subject, inputs: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
    """Losses of the second half of windows (W, T) that start from the zero state, (W, T/2)."""
    half = inputs.shape[1] // 2
    with torch.inference_mode():
        hidden, _ = subject.model.hidden(inputs.to(subject.device))
    return token_losses(subject.model, hidden[:, half:], targets[:, half:].to(subject.device)).cpu()
