"""The two operations of a harness, in constant memory: likelihoods of the ends of texts, and greedy continuations."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise

import torch
from torch import Tensor

from ssm.evaluation.stream import ACTIVATIONS, FORWARD_TOKENS, borders_of
from ssm.models.backbone import LanguageModel
from ssm.models.logits import cross_entropy, likeliest, read_written, token_values
from ssm.models.readable import ModelState, Readable
from ssm.models.state import State


@dataclass(frozen=True)
class ScoredText:
    """A text that is read from the zero state, and the number of its last tokens that are scored."""

    tokens: Sequence[int]
    scored: int  # at most len(tokens) - 1: the first token is only read


@torch.inference_mode()
def scores(model: Readable, batch: Sequence[ScoredText], device: torch.device) -> list[tuple[float, bool]]:
    """For each text: ln p of its scored tokens given all tokens before them, and whether all are the most likely."""
    longest = max(len(text.tokens) for text in batch)
    tokens = torch.zeros(len(batch), longest, dtype=torch.int64)  # (B, T + 1); padding at the end changes nothing
    scored = torch.zeros(len(batch), longest - 1, dtype=torch.bool)  # (B, T)
    for row, text in enumerate(batch):
        tokens[row, : len(text.tokens)] = torch.tensor(text.tokens)
        scored[row, len(text.tokens) - 1 - text.scored : len(text.tokens) - 1] = True
    totals = torch.zeros(len(batch), dtype=torch.float64)  # (B,) nats
    missed = torch.zeros(len(batch), dtype=torch.int64)  # (B,) scored tokens that are not the most likely ones
    size = _piece(model, len(batch), device)
    state: ModelState | None = None
    for start, stop in pairwise(borders_of(0, longest - 1, size)):
        hidden, state = model.hidden(tokens[:, start:stop].to(device), state)  # (B, S, *)
        here = scored[:, start:stop]  # (B, S)
        rows = here.nonzero()[:, 0]  # (n,): the row of every scored token
        if len(rows) == 0:
            continue
        targets = tokens[:, start + 1 : stop + 1][here].to(device)  # (n,)
        losses, wrong = token_values(model, hidden[here.to(device)], targets, _loss_and_miss).cpu().unbind(-1)  # (n,)
        totals.index_add_(0, rows, -losses)
        missed.index_add_(0, rows, wrong.long())
    return [(float(total), count == 0) for total, count in zip(totals, missed.tolist(), strict=True)]


@torch.inference_mode()
def continuations(
    model: Readable,
    prompts: Sequence[Sequence[int]],
    most: int,
    ended: Callable[[int, list[int]], bool],
    device: torch.device,
) -> list[list[int]]:
    """Continue each prompt greedily.

    Args:
        prompts: not empty, and of the same length unless `reads_together` is true.
        most: the largest number of new tokens.
        ended: is called after every token with the number of the prompt and its continuation so far; returns whether
            the continuation is complete.
    """
    longest = max(len(prompt) for prompt in prompts)
    tokens = torch.zeros(len(prompts), longest, dtype=torch.int64)  # (B, T), aligned at the end
    resets = torch.zeros(len(prompts), longest, dtype=torch.bool)  # (B, T): True at the start of a shorter prompt
    for row, prompt in enumerate(prompts):
        tokens[row, longest - len(prompt) :] = torch.tensor(prompt)
        resets[row, longest - len(prompt)] = len(prompt) < longest
    state: ModelState | None = None
    size = _piece(model, len(prompts), device)
    for start, stop in pairwise(borders_of(0, longest, size)):
        piece, forget = (x[:, start:stop].to(device) for x in (tokens, resets))
        if isinstance(model, LanguageModel):
            assert state is None or isinstance(state, State)
            hidden, state = model.hidden(piece, state, forget if bool(forget.any()) else None)
        else:
            hidden, state = model.hidden(piece, state)
    written: list[list[int]] = [[] for _ in prompts]
    open_rows = set(range(len(prompts)))
    for step in range(most):
        new = likeliest(model, hidden[:, -1:])  # (B, 1)
        for row in sorted(open_rows):
            written[row].append(int(new[row]))
            if ended(row, written[row]):
                open_rows.remove(row)
        if not open_rows or step == most - 1:
            break
        hidden, state = read_written(model, new, state)  # (B, 1, *)
    return written


def reads_together(model: Readable) -> bool:
    """Whether prompts of different lengths can be read in one batch. A reset of the state begins a shorter prompt."""
    return isinstance(model, LanguageModel)


def _piece(model: Readable, rows: int, device: torch.device) -> int:
    """The tokens of each row that one forward pass reads."""
    return max(1, min(FORWARD_TOKENS[device.type], ACTIVATIONS // model.hidden_size) // rows)


def _loss_and_miss(logits: Tensor, targets: Tensor) -> Tensor:
    """The loss in nats, and 1 where another token is more likely: (tokens, V), (tokens,) -> (tokens, 2) float64."""
    wrong = logits.argmax(-1) != targets
    return torch.stack([cross_entropy(logits, targets).double(), wrong.double()], -1)
