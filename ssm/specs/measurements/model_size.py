"""The spec of the sizes of models."""

from __future__ import annotations

from typing import ClassVar, Literal

from pydantic import PositiveInt

from ssm.base.schema import Schema
from ssm.specs.measurements.base import OfModels


class ModelSize(OfModels):
    """Configuration and parameter count of named models (lg Table 2)."""

    table: ClassVar[Schema] = Schema(
        "model_size",
        "one named model: its configuration as built here, and its parameter count",
        {
            "model": str,
            "mixer": str,  # for a hybrid all mixers, joined by +
            "n_layers": int,
            "d_model": int,
            "state_shape": str,  # of one sequence in one of most layers, heads first
            "peak_lr": float,
            "parameters": int,  # with the vocabulary of the tokenizer; tied embeddings count once
            "embedding_parameters": int,
            "published_parameters": int,
        },
        keys=("model",),
    )
    kind: Literal["model_size"] = "model_size"
    vocab_size: PositiveInt
