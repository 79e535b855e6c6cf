"""Sizes of named models."""

from __future__ import annotations

from ssm.base.tables.table import F64, I64, TEXT, Schema

MODEL_SIZE = Schema(
    "model_size",
    "one named model: its configuration as built here, and its parameter count",
    {
        "model": TEXT,
        "mixer": TEXT,  # of a hybrid all of them, joined by +
        "n_layers": I64,
        "d_model": I64,
        "state_shape": TEXT,  # of one sequence in one layer (of most layers), the heads first
        "peak_lr": F64,
        "parameters": I64,  # tied embeddings counted once, at the tokenizer's vocabulary
        "embedding_parameters": I64,
        "published_parameters": I64,
    },
    keys=("model",),
)
