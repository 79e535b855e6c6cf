"""A state that starts anew, or fades, every n tokens."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from ssm.models.backbone import LanguageModel
from ssm.models.readable import Readable
from ssm.models.repairs.reading import Reading
from ssm.models.repairs.registry import REPAIRS
from ssm.models.state import RECURRENT, State
from ssm.specs.repairs.base import Point
from ssm.specs.repairs.reset_state import ResetState


@REPAIRS.function
def reset_state(repair: ResetState, model: LanguageModel, chosen: Point) -> Readable:
    """The model that is read so; without an n itself."""
    every, keeps = chosen
    return model if every is None else Resetting(model, round(every), keeps or 0.0)


@dataclass(frozen=True)
class Counted:
    """A state, and how many tokens have been read since the sequence began."""

    state: State
    read: int

    @property
    def nbytes(self) -> int:
        return self.state.nbytes

    def recurrent_states(self) -> list[Tensor]:
        return self.state.recurrent_states()

    def recurrent_layers(self) -> list[int]:
        return self.state.recurrent_layers()

    def copy(self) -> Counted:
        return self

    def select(self, rows: Tensor) -> Counted:
        return Counted(self.state.select(rows), self.read)


class Resetting(Reading):
    """Before every token whose position is a multiple of n, but the first, memories are multiplied by `keeps`.

    With 0 the model starts anew there: convolutions forget too.
    """

    def __init__(self, model: LanguageModel, every: int, keeps: float):
        super().__init__(model)
        self.every, self.keeps = every, keeps

    def hidden(self, tokens: Tensor, state: Counted | None = None) -> tuple[Tensor, Counted]:
        """As of any model (`Readable`), in pieces between the resets."""
        read, own = (0, None) if state is None else (state.read, state.state)
        parts = []
        for piece in _pieces(tokens, self.every - read % self.every, self.every):
            if read and read % self.every == 0:
                own = self._faded(own)
            part, own = self.model.hidden(piece, own)
            parts.append(part)
            read += piece.shape[1]
        assert own is not None
        return torch.cat(parts, 1), Counted(own, read)

    def _faded(self, state: State | None) -> State | None:
        if state is None or self.keeps == 0:
            return None
        return State(tuple({**layer, RECURRENT: layer[RECURRENT] * self.keeps} for layer in state.layers))


def _pieces(tokens: Tensor, first: int, size: int) -> list[Tensor]:
    """(B, T) in pieces of `size`, the first one of `first` tokens at most."""
    rest = tokens[:, first:]
    return [tokens[:, :first], *(rest.split(size, 1) if rest.shape[1] else ())]
