"""The interface that measurements need of a model, for our models and those of transformers."""

from __future__ import annotations

from typing import Any, Protocol

from torch import Tensor


class ModelState(Protocol):
    """The state of a batch of B sequences between two pieces."""

    @property
    def nbytes(self) -> int:
        """Bytes of all tensors."""

    def recurrent_states(self) -> list[Tensor]:
        """The recurrent state of every layer that has one, each (B, H, ...)."""

    def recurrent_layers(self) -> list[int]:
        """The layers of these states, counted from 0 over all layers of the model."""

    def copy(self) -> ModelState:
        """A state that stays valid while this one is used."""

    def select(self, rows: Tensor) -> ModelState:
        """The states of these batch elements, in this order. They stay valid while this state is used.

        Args:
            rows: (n,) int64, each in [0, B); they can repeat.
        """


class Readable(Protocol):
    """A language model that reads a sequence in pieces. `LanguageModel` and `ForeignModel` implement it.

    You can split a sequence anywhere and carry the state, without changing the result.
    """

    @property
    def vocab_size(self) -> int:
        """V: tokens are integers from 0 to V - 1."""

    @property
    def parameters_count(self) -> int:
        """Number of parameters; tied parameters count once."""

    @property
    def hidden_size(self) -> int:
        """Numbers that `hidden` returns for each token."""

    # The state is `Any` because a model accepts only its own type of state. Returned states implement `ModelState`.
    def hidden(self, tokens: Tensor, state: Any = None) -> tuple[Tensor, ModelState]:
        """Hidden activations (B, T, hidden_size) of tokens (B, T) int64, T > 0, and the state after the last one.

        A model of values gets (B, T, C + 1) numbers instead of tokens. `state` is None at the start of a sequence. Use
        each state only once: a model may change it.
        """

    def logits(self, hidden: Tensor) -> Tensor:
        """Logits: (..., hidden_size) -> (..., V)."""
