"""What ways of reading a model share: all else is the model's own."""

from __future__ import annotations

from torch import Tensor

from ssm.models.backbone import LanguageModel


class Reading:
    """A model that is read otherwise; a subclass has `hidden` (`ssm.models.readable.Readable`)."""

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
