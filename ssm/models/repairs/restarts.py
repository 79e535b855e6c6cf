"""Several states that are read side by side, of which the one that did best on the tokens before predicts."""

from __future__ import annotations

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

from ssm.models.backbone import LanguageModel
from ssm.models.readable import Readable
from ssm.models.repairs.reading import Reading
from ssm.models.repairs.registry import REPAIRS
from ssm.models.state import State
from ssm.specs.repairs.base import Point
from ssm.specs.repairs.restarts import Restarts

LOGITS = 2**26  # at once


@REPAIRS.function
def restarts(repair: Restarts, model: LanguageModel, chosen: Point) -> Readable:
    """The model that is read so; without an n itself."""
    (every,) = chosen
    return model if every is None else Staggered(model, repair.states, round(every), repair.window)


@dataclass(frozen=True)
class Several:
    """The states of K readings of the same B sequences, the last one's behind each other, and how well they did.

    losses: (K, B, w) of the last w predictions whose targets were read, infinite where there was none yet; hidden: what
    the target that comes next is predicted from, (K, B, D); read: tokens since the sequences began.
    """

    state: State  # of K B sequences
    losses: Tensor
    hidden: Tensor
    read: int

    @property
    def nbytes(self) -> int:
        return self.state.nbytes + self.losses.nbytes + self.hidden.nbytes

    def recurrent_states(self) -> list[Tensor]:
        return self.state.recurrent_states()

    def recurrent_layers(self) -> list[int]:
        return self.state.recurrent_layers()

    def copy(self) -> Several:
        return self

    def select(self, rows: Tensor) -> Several:
        rows = rows.to(self.hidden.device)
        K, B = self.hidden.shape[:2]
        first = B * torch.arange(K, device=rows.device)  # (K,) of each reading's sequences in the state
        own = self.state.select((first[:, None] + rows).flatten())
        return Several(own, self.losses.index_select(1, rows), self.hidden.index_select(1, rows), self.read)


class Staggered(Reading):
    """K states, of which all but the first are restarted every n tokens, j n / (K - 1) tokens apart (j = 0 ... K - 2).

    At a token the state predicts whose mean loss over the last `window` predictions is least, of those that have made
    so many since they began; of equals the one with the lower number, and before anyone has, the first.
    """

    def __init__(self, model: LanguageModel, states: int, every: int, window: int):
        super().__init__(model)
        self.states, self.every, self.window = states, every, window
        self.phases = [None, *(round(j * every / (states - 1)) for j in range(states - 1))]

    def hidden(self, tokens: Tensor, state: Several | None = None) -> tuple[Tensor, Several]:
        """As of any model (`Readable`): of K hidden activations of a token the one that is chosen, (B, T, D)."""
        B, T = tokens.shape
        K, read = self.states, 0 if state is None else state.read
        began = self._began(read, T).to(tokens.device)  # (K, T)
        resets = (began == torch.arange(read, read + T, device=tokens.device)) & (began > 0)  # (K, T)
        found, own = self.model.hidden(
            tokens.repeat(K, 1), None if state is None else state.state, resets.repeat_interleave(B, 0)
        )
        found = found.unflatten(0, (K, B))  # (K, B, T, D)
        losses = self._losses(found[:, :, :-1], tokens[:, 1:])  # (K, B, T - 1)
        if state is None:
            past = losses.new_full((K, B, self.window), torch.inf)
        else:  # what the last token of the piece before has predicted is this one's first token
            past = torch.cat([state.losses, self._losses(state.hidden.unsqueeze(2), tokens[:, :1])], -1)[..., 1:]
        known = torch.cat([past, losses], -1)  # (K, B, w + T - 1)
        scores = known.unfold(-1, self.window, 1).mean(-1)  # (K, B, T): of the w predictions before each token
        age = torch.arange(read, read + T, device=tokens.device) - began  # (K, T): predictions since it began
        scores = scores.masked_fill((age < self.window).unsqueeze(1), torch.inf)
        best = scores.argmin(0)  # (B, T): of equals the first
        chosen = found.gather(0, best[None, :, :, None].expand(1, B, T, found.shape[-1]))[0]  # (B, T, D)
        return chosen, Several(own, known[..., -self.window :], found[:, :, -1], read + T)

    def _began(self, read: int, count: int) -> Tensor:
        """Where every state began that has read the tokens [read, read + count): (K, count) positions."""
        positions = torch.arange(read, read + count)
        since = [
            torch.zeros_like(positions) if phase is None else ((positions - phase) // self.every * self.every + phase)
            for phase in self.phases
        ]
        return torch.stack(since).clamp_min(0)

    def _losses(self, hidden: Tensor, targets: Tensor) -> Tensor:
        """In nats: (K, B, S, D), (B, S) -> (K, B, S); logits exist for a few tokens at a time."""
        targets = targets.expand(hidden.shape[:3])  # (K, B, S)
        precise = torch.promote_types(hidden.dtype, torch.float32)
        if not targets.numel():
            return hidden.new_empty(targets.shape, dtype=precise)
        at_once = max(1, LOGITS // self.vocab_size)
        pairs = zip(hidden.flatten(0, 2).split(at_once), targets.flatten().split(at_once), strict=True)
        parts = [F.cross_entropy(self.logits(part).to(precise), wanted, reduction="none") for part, wanted in pairs]
        return torch.cat(parts).view(targets.shape)
