"""Read a sequence with several states in parallel. The state with the lowest recent loss predicts the next token."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from ssm.models.backbone import LanguageModel
from ssm.models.logits import cross_entropy, token_values
from ssm.models.readable import Readable
from ssm.models.repairs.base import REPAIRS, ModelWrapper, WrapperState
from ssm.specs.repairs.base import Point
from ssm.specs.repairs.restarts import Restarts


@REPAIRS.function
def restarts(repair: Restarts, model: LanguageModel, chosen: Point) -> Readable:
    """A model that reads with restarts. If no n is chosen, the model itself."""
    (every,) = chosen
    return model if every is None else Staggered(model, repair.states, round(every), repair.window)


@dataclass(frozen=True)
class StaggeredState(WrapperState):
    """The states of K readings of B sequences, and their recent losses.

    Args:
        state: of K B sequences; the B sequences of each reading follow each other.
        losses: (K, B, w) losses of the last w predictions; infinite before the first predictions.
        hidden: (K, B, D) activations that predict the next token.
    """

    losses: Tensor
    hidden: Tensor

    @property
    def nbytes(self) -> int:
        return self.state.nbytes + self.losses.nbytes + self.hidden.nbytes

    def select(self, rows: Tensor) -> StaggeredState:
        rows = rows.to(self.hidden.device)
        K, B = self.hidden.shape[:2]
        first = B * torch.arange(K, device=rows.device)  # (K,): first sequence of each reading in `state`
        state = self.state.select((first[:, None] + rows).flatten())
        return StaggeredState(state, self.read, self.losses.index_select(1, rows), self.hidden.index_select(1, rows))


class Staggered(ModelWrapper):
    """K states. The first is never restarted; state j + 2 restarts every n tokens, shifted by j n / (K - 1) tokens.

    The state with the lowest mean loss over the last `window` predictions predicts the next token. Only states with
    `window` predictions since their restart compete. Among equal states, the first predicts; so does the first state
    while no state has enough predictions.
    """

    def __init__(self, model: LanguageModel, states: int, every: int, window: int):
        super().__init__(model)
        self.states, self.every, self.window = states, every, window
        self.phases = [None, *(round(j * every / (states - 1)) for j in range(states - 1))]

    def hidden(self, tokens: Tensor, state: StaggeredState | None = None) -> tuple[Tensor, StaggeredState]:
        """As `Readable.hidden`: for each token, the activations of the chosen state, (B, T, D)."""
        B, T = tokens.shape
        K, read = self.states, 0 if state is None else state.read
        began = self._began(read, T).to(tokens.device)  # (K, T)
        resets = (began == torch.arange(read, read + T, device=tokens.device)) & (began > 0)  # (K, T)
        hidden, model_state = self.model.hidden(
            tokens.repeat(K, 1), None if state is None else state.state, resets.repeat_interleave(B, 0)
        )
        hidden = hidden.unflatten(0, (K, B))  # (K, B, T, D)
        losses = self._losses(hidden[:, :, :-1], tokens[:, 1:])  # (K, B, T - 1)
        if state is None:
            past = losses.new_full((K, B, self.window), torch.inf)
        else:  # the last token of the previous piece predicted the first token of this piece
            past = torch.cat([state.losses, self._losses(state.hidden.unsqueeze(2), tokens[:, :1])], -1)[..., 1:]
        known = torch.cat([past, losses], -1)  # (K, B, w + T - 1)
        scores = known.unfold(-1, self.window, 1).mean(-1)  # (K, B, T): over the w predictions before each token
        age = torch.arange(read, read + T, device=tokens.device) - began  # (K, T): predictions since the restart
        scores = scores.masked_fill((age < self.window).unsqueeze(1), torch.inf)
        best = scores.argmin(0)  # (B, T): the first of equal states
        chosen = hidden.gather(0, best[None, :, :, None].expand(1, B, T, hidden.shape[-1]))[0]  # (B, T, D)
        return chosen, StaggeredState(model_state, read + T, known[..., -self.window :], hidden[:, :, -1])

    def _began(self, read: int, count: int) -> Tensor:
        """The last restart of each state before or at the tokens [read, read + count): (K, count) positions."""
        positions = torch.arange(read, read + count)
        since = [
            torch.zeros_like(positions) if phase is None else ((positions - phase) // self.every * self.every + phase)
            for phase in self.phases
        ]
        return torch.stack(since).clamp_min(0)

    def _losses(self, hidden: Tensor, targets: Tensor) -> Tensor:
        """Losses in nats: (K, B, S, D), (B, S) -> (K, B, S)."""
        return token_values(self, hidden, targets.expand(hidden.shape[:3]), cross_entropy)
