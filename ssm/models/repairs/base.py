"""The registry of repair functions, and base classes of repairs that change how a model is read."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, Self

from torch import Tensor

from ssm.base.plugin_modules import Modules
from ssm.models.backbone import LanguageModel
from ssm.models.readable import Readable
from ssm.models.state import State
from ssm.models.trainable import TrainableModel
from ssm.specs.repairs import SPECS
from ssm.specs.repairs.base import Point

REPAIRS: Modules[Callable[[Any, TrainableModel, Point], Readable]] = Modules("ssm.models.repairs", SPECS)


@dataclass(frozen=True)
class WrapperState:
    """The state of a `ModelWrapper`: states of the model, and the number of tokens read. A subclass may hold more.

    Args:
        state: the model's state, with one or several entries for each sequence.
        read: number of tokens since the start of the sequences.
    """

    state: State
    read: int

    @property
    def nbytes(self) -> int:
        return self.state.nbytes

    def recurrent_states(self) -> list[Tensor]:
        return self.state.recurrent_states()

    def recurrent_layers(self) -> list[int]:
        return self.state.recurrent_layers()

    def copy(self) -> Self:
        """Returns self, as `State.copy`."""
        return self

    def select(self, rows: Tensor) -> Self:
        return replace(self, state=self.state.select(rows))


class ModelWrapper:
    """Reads a model in another way. A subclass defines `hidden` (`ssm.models.readable.Readable`)."""

    def __init__(self, model: LanguageModel):
        self.model = model

    @property
    def vocab_size(self) -> int:
        return self.model.vocab_size

    @property
    def parameters_count(self) -> int:
        return self.model.parameters_count

    @property
    def hidden_size(self) -> int:
        return self.model.hidden_size

    def logits(self, hidden: Tensor) -> Tensor:
        """(..., D) -> (..., V)."""
        return self.model.logits(hidden)
