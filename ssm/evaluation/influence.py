"""The influence of each token on the output at the end of the window (bn figures 1 and 7)."""

from __future__ import annotations

import polars as pl
import torch
from torch import Tensor

from ssm.base.seeds import derived_seed
from ssm.evaluation.evaluation_context import EvaluationContext
from ssm.evaluation.inside import own_layers, window_groups
from ssm.evaluation.registry import MEASURES
from ssm.models.inspect import influence as influence_of
from ssm.specs.measurements.influence import Influence


@MEASURES.function
def influence(spec: Influence, ctx: EvaluationContext) -> pl.DataFrame:
    """log |dy_t/dx_s| by window and distance t - s, in the schema Influence.table.

    Raises:
        CheckpointError: the layers are not ssm's own.
    """
    model = own_layers(spec, ctx)
    passes, width = spec.passes(model.spec), model.spec.d_model
    seed = derived_seed(spec.seed, "directions", ctx.seed)
    directions = None if passes == width else random_directions(passes, width, seed)
    frames = [pl.DataFrame(schema=Influence.table.columns)]
    for rows, tokens in window_groups(spec, ctx):
        norms = influence_of(model, tokens, directions).log().cpu()  # (B, T)
        distances = torch.arange(spec.length - 1, -1, -1)
        columns = {
            "sequence": rows.repeat_interleave(spec.length).numpy(),
            "distance": distances.repeat(len(rows)).numpy(),
            "log_influence": norms.flatten().numpy(),
        }
        frames.append(pl.DataFrame(columns, schema=Influence.table.columns))
    return ctx.gather(pl.concat(frames)).sort("sequence", "distance")


def random_directions(count: int, width: int, seed: int) -> Tensor:
    """Uniformly distributed orthonormal rows, (count, width)."""
    generator = torch.Generator().manual_seed(seed)
    q, r = torch.linalg.qr(torch.randn(width, count, generator=generator, dtype=torch.float64))
    return (q * r.diagonal().sign()).T
