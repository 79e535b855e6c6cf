"""The correlation of the weights of B and C (mi Section 6)."""

from __future__ import annotations

import polars as pl
import torch

from ssm.evaluation.evaluation_context import EvaluationContext
from ssm.evaluation.inside import own_layers
from ssm.evaluation.registry import MEASURES
from ssm.models.backbone import Block
from ssm.specs.measurements.bc_correlation import BcCorrelation


@MEASURES.function
def bc_correlation(spec: BcCorrelation, ctx: EvaluationContext) -> pl.DataFrame:
    """A row for each layer with B and C, in the schema BcCorrelation.table.

    Raises:
        CheckpointError: the layers are not ssm's own, or none of them has B and C.
    """
    rows = []
    for number, layer in enumerate(own_layers(spec, ctx).layers, 1):
        weights = layer.mixer.bc_weights if isinstance(layer, Block) else None
        if weights is not None:
            pairs = torch.stack([weight.double().flatten() for weight in weights])  # (2, N D)
            rows.append({"layer": number, "correlation": float(torch.corrcoef(pairs)[0, 1])})
    return pl.DataFrame(rows, schema=spec.table.columns)
