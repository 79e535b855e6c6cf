"""What measurements need of a model, whoever wrote its forward pass."""

from __future__ import annotations

from typing import Any, Protocol

from torch import Tensor


class Carried(Protocol):
    """What a model carries from one piece of a sequence to the next: a batch of B states."""

    @property
    def nbytes(self) -> int:
        """Bytes of all tensors."""

    def recurrent_states(self) -> list[Tensor]:
        """The recurrent state of every layer that has one, each (B, H, ...)."""

    def recurrent_layers(self) -> list[int]:
        """The number of the layer of each, counted from 0 over all layers of the model."""

    def copy(self) -> Carried:
        """The same state to carry on from, while this one is kept."""

    def select(self, rows: Tensor) -> Carried:
        """The states of these batch elements, in this order, to carry on from while this one is kept.

        Args:
            rows: (n,) int64, each in [0, B); they may repeat.
        """


class Readable(Protocol):
    """A language model that reads a sequence in pieces. Splitting it anywhere and carrying the state changes nothing.

    `LanguageModel` and `ForeignModel` are such.
    """

    @property
    def vocab_size(self) -> int:
        """V: every token is below it."""

    @property
    def parameters_count(self) -> int:
        """Parameters, tied ones once."""

    @property
    def hidden_size(self) -> int:
        """Numbers that `hidden` gives for each token."""

    # The state is `Any` because a model takes back only its own kind. What it gives must fulfil `Carried`.
    def hidden(self, tokens: Tensor, state: Any = None) -> tuple[Tensor, Carried]:
        """tokens (B, T) int64 -> what `logits` makes logits of, (B, T, *), and the state after the last token.

        A model whose inputs are values and no tokens is given these, (B, T, C + 1).
        A state (of this model; None at a sequence's start) is given back once, with the tokens that follow.
        """

    def logits(self, hidden: Tensor) -> Tensor:
        """(..., *) -> (..., V)."""
