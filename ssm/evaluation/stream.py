"""Read long sequences in constant memory: segment by segment, with the state carried on."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from typing import Protocol
from weakref import WeakKeyDictionary

import numpy as np
import torch
from torch import Tensor

from ssm.evaluation.evaluation_context import EvaluationContext
from ssm.models.readable import ModelState, Readable

ROWS = {"cpu": 32, "cuda": 64}  # sequences in a batch; more if they are short
FORWARD_TOKENS = {"cpu": 2048, "cuda": 131_072}  # tokens in a forward pass: fit a CPU's caches, fill a GPU

STATES = {"cpu": 4 * 2**30, "cuda": 16 * 2**30}  # maximum bytes of the states of a batch
PROBED = 64  # a state that still grows after this number of tokens is expected to grow at this rate
ACTIVATIONS = 2**27  # maximum number of hidden activations in memory: 0.5 GiB in float32
PROBES: WeakKeyDictionary[Readable, dict[tuple[int, bool], list[int]]] = WeakKeyDictionary()  # results of `_probed`


class Sequences(Protocol):
    """Sequences that can be read in segments: `HeldOutWindows`, or those that a measurement makes."""

    def __len__(self) -> int:
        """Number of sequences."""

    def read(self, rows: np.ndarray, start: int, stop: int) -> tuple[Tensor, Tensor]:
        """Inputs and targets [start, stop) of some sequences: two (rows, stop - start) int64 tensors.

        Inputs that are not tokens are (rows, stop - start, C + 1) float.
        """


@dataclass(frozen=True)
class Segment:
    """Positions [start, stop) of some sequences, and their detached state after `stop`."""

    rows: Tensor  # (B,) int64, numbers of the sequences
    start: int
    stop: int
    hidden: Tensor  # (B, S, *), input of the head
    targets: Tensor  # (B, S)
    state: ModelState  # valid until the next segment is read


def segments(
    ctx: EvaluationContext, sequences: Sequences, length: int, start: int = 0, stops: list[int] | None = None
) -> Iterator[Segment]:
    """Read the sequences of this process from `start`, in the zero state, to `length`, in batches and segments.

    Args:
        stops: positions at which a segment must end, because the state is needed there.
    """
    device = ctx.device
    at_once = min(FORWARD_TOKENS[device.type], ACTIVATIONS // ctx.model.hidden_size)  # tokens
    most = max(ROWS[device.type], at_once // (length - start))
    fitting = STATES[device.type] // max(1, _state_bytes(ctx, sequences, start, length))
    groups = ctx.groups(len(sequences), max(1, min(most, fitting)))
    size = max(1, at_once // max((len(rows) for rows in groups), default=1))
    borders = sorted({*borders_of(start, length, size), *(stops or [])})
    for rows in groups:
        state: ModelState | None = None
        for first, stop in pairwise(borders):
            inputs, targets = sequences.read(rows.numpy(), first, stop)
            with torch.inference_mode():
                hidden, state = ctx.model.hidden(inputs.to(device), state)
            yield Segment(rows, first, stop, hidden, targets.to(device), state)


def borders_of(start: int, stop: int, size: int) -> list[int]:
    """Borders of pieces of at most `size` tokens. The last piece has more than one token, if possible.

    Some models of transformers compute something else for a single token.
    """
    borders = [*range(start, stop, size), stop]
    if size > 2 and len(borders) > 2 and borders[-2] == stop - 1:
        borders[-2] -= 1
    return borders


def _state_bytes(ctx: EvaluationContext, sequences: Sequences, start: int, stop: int) -> int:
    """Bytes of the state of one sequence after the tokens [start, stop). A cache grows with every token.

    The size depends on the number of tokens and not on their values. So each number is measured once per model.
    """
    if not len(sequences):
        return 0
    probed = min(stop - start, PROBED)
    known = PROBES.setdefault(ctx.model, {})
    key = probed, torch.is_autocast_enabled(ctx.device.type)
    if key not in known:
        known[key] = _probed(ctx, sequences, start, probed)
    before, after = known[key]
    return after + (stop - start - probed) * (after - before)


@torch.inference_mode()
def _probed(ctx: EvaluationContext, sequences: Sequences, start: int, tokens: int) -> list[int]:
    """Sizes of the state of the first sequence before and after the last of `tokens` tokens, in bytes."""
    inputs, _ = sequences.read(np.zeros(1, np.int64), start, start + tokens)
    state: ModelState | None = None
    sizes = [0]
    for piece in inputs.to(ctx.device).split(max(1, tokens - 1), dim=1):  # all tokens but the last, and the last
        _, state = ctx.model.hidden(piece, state)
        sizes.append(state.nbytes)
    return sizes[-2:]
