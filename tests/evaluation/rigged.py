"""Models with known predictions, which have only what measurements need (`Readable`)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import torch
import torch.nn.functional as F
from torch import Tensor


@dataclass
class Carries:
    """The state of a rigged model."""

    tokens: Tensor  # (B, T), all tokens that were read
    remembered: list[Tensor] = field(default_factory=list)

    @property
    def nbytes(self) -> int:
        return self.tokens.nbytes

    def recurrent_states(self) -> list[Tensor]:
        return self.remembered

    def recurrent_layers(self) -> list[int]:
        return list(range(len(self.remembered)))

    def copy(self) -> Carries:
        return self

    def select(self, rows: Tensor) -> Carries:
        return Carries(self.tokens[rows])


class Rigged:
    """Predicts by a rule: from all tokens (B, T), the prediction after each token, (B, T) int64."""

    parameters_count = 0
    hidden_size = 1

    def __init__(self, rule: Callable[[Tensor], Tensor], vocab_size: int = 256):
        self.rule, self.vocab_size = rule, vocab_size

    def hidden(self, tokens: Tensor, state: Carries | None = None) -> tuple[Tensor, Carries]:
        """The prediction after each token: (B, T, 1)."""
        read = tokens if state is None else torch.cat([state.tokens, tokens], 1)
        return self.rule(read)[:, read.shape[1] - tokens.shape[1] :, None].double(), Carries(read)

    def logits(self, hidden: Tensor) -> Tensor:
        return F.one_hot(hidden[..., 0].long(), self.vocab_size).double()


def copying(suffix: int, window: int = 10**9) -> Callable[[Tensor], Tensor]:
    """Predict what followed the last occurrence of the last `suffix` tokens within `window` tokens; otherwise 0."""

    def rule(read: Tensor) -> Tensor:
        predicted = torch.zeros_like(read)
        for row, tokens in enumerate(read.tolist()):
            seen: dict[tuple[int, ...], int] = {}
            for t in range(suffix - 1, len(tokens)):
                last = tuple(tokens[t - suffix + 1 : t + 1])
                then = seen.get(last)
                if then is not None and t - then <= window:
                    predicted[row, t] = tokens[then + 1]
                seen[last] = t
        return predicted

    return rule
