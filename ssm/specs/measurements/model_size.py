"""Sizes of named models."""

from __future__ import annotations

from typing import ClassVar, Literal, Self

from pydantic import PositiveInt

from ssm.base.schema import Schema
from ssm.specs.config import DryRun
from ssm.specs.measurements.base import OfModels, Work
from ssm.specs.training import RunSpec


class ModelSize(OfModels):
    """Configuration and parameter count of named models (lg Table 2)."""

    table: ClassVar[Schema] = Schema(
        "model_size",
        "one named model: its configuration as built here, and its parameter count",
        {
            "model": str,
            "mixer": str,  # of a hybrid all of them, joined by +
            "n_layers": int,
            "d_model": int,
            "state_shape": str,  # of one sequence in one layer (of most layers), the heads first
            "peak_lr": float,
            "parameters": int,  # tied embeddings counted once, at the tokenizer's vocabulary
            "embedding_parameters": int,
            "published_parameters": int,
        },
        keys=("model",),
    )
    kind: Literal["model_size"] = "model_size"
    vocab_size: PositiveInt

    def work(self, run: RunSpec | None) -> tuple[Work, ...]:
        return ()

    def capped(self, caps: DryRun) -> Self:
        return self
