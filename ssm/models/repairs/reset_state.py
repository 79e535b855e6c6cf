"""Reset or scale down the state every n tokens."""

from __future__ import annotations

import torch
from torch import Tensor

from ssm.models.backbone import LanguageModel
from ssm.models.readable import Readable
from ssm.models.repairs.base import REPAIRS, ModelWrapper, WrapperState
from ssm.models.state import State
from ssm.specs.repairs.base import Point
from ssm.specs.repairs.reset_state import ResetState


@REPAIRS.function
def reset_state(repair: ResetState, model: LanguageModel, chosen: Point) -> Readable:
    """A model that reads with resets. If no n is chosen, the model itself."""
    every, keeps = chosen
    return model if every is None else Resetting(model, round(every), keeps or 0.0)


class Resetting(ModelWrapper):
    """Multiplies the weight of earlier tokens by `keeps` before each token at a multiple of n, except at the start.

    With 0 the whole state is reset: also the inputs of convolutions and the caches of attention. With another factor,
    the cache of attention stays as it is.
    """

    def __init__(self, model: LanguageModel, every: int, keeps: float):
        super().__init__(model)
        self.every, self.keeps = every, keeps

    def hidden(self, tokens: Tensor, state: WrapperState | None = None) -> tuple[Tensor, WrapperState]:
        """As `Readable.hidden`. It reads the tokens between two resets together."""
        read, model_state = (0, None) if state is None else (state.read, state.state)
        parts = []
        for piece in _pieces(tokens, self.every - read % self.every, self.every):
            if read and read % self.every == 0:
                model_state = self._scaled(model_state)
            part, model_state = self.model.hidden(piece, model_state)
            parts.append(part)
            read += piece.shape[1]
        assert model_state is not None
        return torch.cat(parts, 1), WrapperState(model_state, read)

    def _scaled(self, state: State | None) -> State | None:
        if state is None or self.keeps == 0:
            return None
        return self.model.faded(state, self.keeps)


def _pieces(tokens: Tensor, first: int, size: int) -> list[Tensor]:
    """(B, T) in pieces of at most `size` tokens, the first of at most `first` tokens."""
    rest = tokens[:, first:]
    return [tokens[:, :first], *(rest.split(size, 1) if rest.shape[1] else ())]
