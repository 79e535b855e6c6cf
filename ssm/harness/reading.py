"""What a harness asks of a model: how likely the end of a text is, and how a text goes on. In constant memory."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from ssm.evaluation.stream import FORWARD_TOKENS, LOGITS, cross_entropy, likeliest
from ssm.models.backbone import LanguageModel
from ssm.models.readable import Carried, Readable
from ssm.models.state import State


@dataclass(frozen=True)
class Asked:
    """A text that is read from the zero state, and of how many of its last tokens the likelihood is asked for."""

    tokens: Sequence[int]
    scored: int  # at most all but the first


@torch.inference_mode()
def log_likelihoods(model: Readable, batch: Sequence[Asked], device: torch.device) -> list[tuple[float, bool]]:
    """Of each text: ln p of its scored tokens given all before them, and whether each of them is the likeliest."""
    longest = max(len(one.tokens) for one in batch)
    tokens = torch.zeros(len(batch), longest, dtype=torch.int64)  # (B, T + 1); what lies behind an end changes nothing
    scored = torch.zeros(len(batch), longest - 1, dtype=torch.bool)  # (B, T)
    for row, one in enumerate(batch):
        tokens[row, : len(one.tokens)] = torch.tensor(one.tokens)
        scored[row, len(one.tokens) - 1 - one.scored : len(one.tokens) - 1] = True
    totals = torch.zeros(len(batch), dtype=torch.float64)  # (B,) nats
    missed = torch.zeros(len(batch), dtype=torch.int64)  # (B,) tokens that are not the likeliest
    size = _piece(model, len(batch), device)
    state: Carried | None = None
    for start in range(0, longest - 1, size):
        stop = min(start + size, longest - 1)
        hidden, state = model.hidden(tokens[:, start:stop].to(device), state)  # (B, S, *)
        here = scored[:, start:stop]  # (B, S)
        rows = here.nonzero()[:, 0]  # (n,) of every scored token
        if len(rows) == 0:
            continue
        targets = tokens[:, start + 1 : stop + 1][here].to(device)  # (n,)
        values, wrong = _values(model, hidden[here.to(device)], targets)
        totals.index_add_(0, rows, -values)
        missed.index_add_(0, rows, wrong)
    return [(float(total), count == 0) for total, count in zip(totals, missed.tolist(), strict=True)]


@torch.inference_mode()
def continuations(
    model: Readable,
    prompts: Sequence[Sequence[int]],
    most: int,
    ended: Callable[[int, list[int]], bool],
    device: torch.device,
) -> list[list[int]]:
    """What the model writes behind each prompt, the likeliest token each time.

    Args:
        prompts: of one length, if `reads_together` does not say that they may differ; none is empty.
        most: tokens.
        ended: whether the text behind a prompt, by its number, is complete. It is asked after every token.
    """
    longest = max(len(prompt) for prompt in prompts)
    tokens = torch.zeros(len(prompts), longest, dtype=torch.int64)  # (B, T), prompts at its end
    resets = torch.zeros(len(prompts), longest, dtype=torch.bool)  # (B, T): what lies before a prompt is forgotten
    for row, prompt in enumerate(prompts):
        tokens[row, longest - len(prompt) :] = torch.tensor(prompt)
        resets[row, longest - len(prompt)] = len(prompt) < longest
    state: Carried | None = None
    size = _piece(model, len(prompts), device)
    for start in range(0, longest, size):
        piece, forget = (x[:, start : start + size].to(device) for x in (tokens, resets))
        if isinstance(model, LanguageModel):
            assert state is None or isinstance(state, State)
            hidden, state = model.hidden(piece, state, forget if bool(forget.any()) else None)
        else:
            hidden, state = model.hidden(piece, state)
    written: list[list[int]] = [[] for _ in prompts]
    open_rows = set(range(len(prompts)))
    for step in range(most):
        said = likeliest(model, hidden[:, -1:])  # (B, 1)
        for row in sorted(open_rows):
            written[row].append(int(said[row]))
            if ended(row, written[row]):
                open_rows.remove(row)
        if not open_rows or step == most - 1:
            break
        hidden, state = model.hidden(said, state)  # (B, 1, *)
    return written


def reads_together(model: Readable) -> bool:
    """Whether prompts of several lengths can be read side by side: the shorter ones behind a reset."""
    return isinstance(model, LanguageModel)


def _piece(model: Readable, rows: int, device: torch.device) -> int:
    """Tokens of each of so many rows that go through the model at once."""
    return max(1, min(FORWARD_TOKENS[device.type], LOGITS // model.hidden_size) // rows)


def _values(model: Readable, hidden: Tensor, targets: Tensor) -> tuple[Tensor, Tensor]:
    """The losses of (n,) targets in nats, float64, and where another is likelier, int64; logits exist for a few."""
    losses, wrong = [], []
    at_once = max(1, LOGITS // model.vocab_size)
    for part, wanted in zip(hidden.split(at_once), targets.split(at_once), strict=True):
        logits = model.logits(part)  # (tokens, V)
        losses.append(cross_entropy(logits, wanted).double().cpu())
        wrong.append((logits.argmax(-1) != wanted).long().cpu())
    return torch.cat(losses), torch.cat(wrong)
