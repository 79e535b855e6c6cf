"""Long sequences in constant memory: segments stream through, the state is carried."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise

import torch
import torch.nn.functional as F
from torch import Tensor

from ssm.data.batches import HeldOutWindows
from ssm.evaluation.subject import Subject
from ssm.models.backbone import LanguageModel
from ssm.models.state import State

ROWS = {"cpu": 32, "cuda": 64}  # sequences side by side
FORWARD_TOKENS = {"cpu": 2048, "cuda": 131_072}  # tokens a forward pass: what fits the caches, what fills a GPU

LOGITS = 2**27  # logits at once: half a GiB in float32


@dataclass(frozen=True)
class Segment:
    """A stretch [start, stop) of some sequences, and the state (detached) that they are in behind it."""

    rows: Tensor  # (B,) int64, numbers of the sequences
    start: int
    stop: int
    hidden: Tensor  # (B, S, D), last hidden activations
    targets: Tensor  # (B, S)
    state: State


def segments(
    subject: Subject, windows: HeldOutWindows, length: int, stops: list[int] | None = None
) -> Iterator[Segment]:
    """My windows from the zero state to `length`, a few sequences and a segment at a time.

    Args:
        stops: positions at which a segment must end (where the state is looked at).
    """
    device = subject.device
    groups = subject.groups(len(windows.positions), ROWS[device.type])
    size = max(1, FORWARD_TOKENS[device.type] // max((len(rows) for rows in groups), default=1))
    borders = sorted({*range(0, length, size), *(stops or []), length})
    for rows in groups:
        state: State | None = None
        for start, stop in pairwise(borders):
            inputs, targets = windows.read(rows.numpy(), start, stop)
            with torch.inference_mode():
                hidden, state = subject.model.hidden(inputs.to(device), state)
            yield Segment(rows, start, stop, hidden, targets.to(device), state)


@torch.inference_mode()
def token_losses(model: LanguageModel, hidden: Tensor, targets: Tensor) -> Tensor:
    """Cross-entropy in nats of every target, (B, S), at least in float32; logits exist for a few tokens at a time."""
    at_once = max(1, LOGITS // model.vocab_size)
    pairs = zip(hidden.flatten(0, 1).split(at_once), targets.flatten().split(at_once), strict=True)
    losses = [_cross_entropy(model.logits(part), wanted) for part, wanted in pairs]
    return torch.cat(losses).view(targets.shape)


def _cross_entropy(logits: Tensor, targets: Tensor) -> Tensor:
    precise = logits.to(torch.promote_types(logits.dtype, torch.float32))  # (tokens, V)
    return F.cross_entropy(precise, targets, reduction="none")
