"""Sizes of named models."""

from __future__ import annotations

from typing import Literal, Self

from pydantic import PositiveInt

from ssm.specs.config import Rehearsal
from ssm.specs.measurements.base import OfModels, Work
from ssm.specs.training import RunSpec


class ModelSize(OfModels):
    """Configuration and parameter count of named models (lg Table 2)."""

    kind: Literal["model_size"] = "model_size"
    vocab_size: PositiveInt

    def work(self, run: RunSpec | None) -> tuple[Work, ...]:
        return ()

    def capped(self, caps: Rehearsal) -> Self:
        return self
