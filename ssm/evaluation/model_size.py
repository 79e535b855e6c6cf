"""Configuration and parameter count of named models (lg Table 2). Parameters are counted on the built model."""

from __future__ import annotations

import polars as pl
import torch

from ssm.evaluation.registry import MEASURES
from ssm.models.backbone import LanguageModel
from ssm.specs.measurements.model_size import ModelSize


@MEASURES.function
def model_size(spec: ModelSize, device: torch.device | None = None) -> pl.DataFrame:
    """One row for each model, in the schema ModelSize.table. Models are built on the meta device, without memory."""
    rows = []
    for model in spec.models:
        with torch.device("meta"):
            built = LanguageModel(model, spec.vocab_size)
        rows.append(
            {
                "model": model.name,
                "mixer": "+".join(dict.fromkeys(mixer.kind for mixer in model.mixers())),
                "n_layers": model.n_layers,
                "d_model": model.d_model,
                "state_shape": " x ".join(map(str, model.main_mixer().state_shape(model.d_model))),
                "peak_lr": model.peak_lr,
                "parameters": built.parameters_count,
                "embedding_parameters": sum(weights.numel() for weights in built.embedding.parameters()),
                "published_parameters": model.published_parameters,
            }
        )
    return pl.DataFrame(rows, schema=ModelSize.table.columns)
