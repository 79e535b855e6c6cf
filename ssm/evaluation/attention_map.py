"""The attention maps of a model's layers on test examples, and the places of the answers in them (mi Section 3)."""

from __future__ import annotations

import numpy as np
import polars as pl
import torch
from torch import Tensor

from ssm.base.errors import CheckpointError
from ssm.base.seeds import derived_seed
from ssm.data.tasks import build_generator
from ssm.data.tasks.base import Examples
from ssm.evaluation.evaluation_context import EvaluationContext
from ssm.evaluation.inside import own_layers
from ssm.evaluation.registry import MEASURES
from ssm.models.inspect import layer_maps
from ssm.specs.measurements.attention_map import AttentionMap

NOWHERE = -1


@MEASURES.function
def attention_map(spec: AttentionMap, ctx: EvaluationContext) -> pl.DataFrame:
    """The weights by example, layer, query and key, in the schema AttentionMap.table.

    Raises:
        CheckpointError: the layers are not ssm's own, or a requested layer has no map.
    """
    model, task = own_layers(spec, ctx), spec.test
    mapped = {layer + 1 for layer in model.spec.mapped(spec.mask)}
    if not mapped.issuperset(spec.layers or ()):
        why = "it has no linear recurrence with a decay" if spec.mask else "its outputs are not sums over tokens"
        raise CheckpointError(f"one of the requested layers has no attention {'mask' if spec.mask else 'map'}: {why}")
    seed = derived_seed(spec.seed, "attention map", ctx.seed)
    generator = build_generator(task, "test", seed, ctx.store)
    frames = [pl.DataFrame(schema=AttentionMap.table.columns)]
    with ctx.progress(spec.examples, task.least_context) as progress:
        for rows in ctx.groups(spec.examples, 1):
            made = generator.checked(rows.numpy())
            size = int(made.answers.stop.max())  # inputs up to the last scored target
            tokens = torch.from_numpy(made.inputs[:, :size]).to(ctx.device)
            for layer, weights in layer_maps(model, tokens, spec.mask):
                if spec.layers is None or layer + 1 in spec.layers:
                    receptive_field = model.spec.mixers()[layer].receptive_field
                    matrix, places = weights[0].double().cpu(), answer_places(made)
                    frames.append(_of_layer(int(rows), layer + 1, matrix, places, receptive_field))
            progress.advance(task.least_context)
    return ctx.gather(pl.concat(frames)).sort("example", "layer", "query", "key")


def answer_places(made: Examples) -> np.ndarray:
    """For each input of the first example, the place from which the next token is copied, (N,); or NOWHERE."""
    places = np.full(made.target_mask.shape[1], NOWHERE)
    if made.sources is not None:
        answers = made.answers
        for start, stop in zip(answers.start[answers.example == 0], answers.stop[answers.example == 0], strict=True):
            places[start:stop] = made.sources[0, start:stop]
    return places


def _of_layer(example: int, layer: int, weights: Tensor, places: np.ndarray, receptive_field: int) -> pl.DataFrame:
    """The rows of one layer: the lower triangle of `weights` (T, T)."""
    shares = weights.abs() / weights.abs().sum(-1, keepdim=True)
    queries, keys = torch.tril_indices(*weights.shape).numpy()  # (T (T + 1) / 2,) each
    answered = pl.when(pl.Series(places[queries] != NOWHERE))
    offsets = pl.select(answered.then(pl.Series(keys - places[queries]))).to_series()
    return pl.DataFrame(
        {
            "example": np.full(len(keys), example),
            "layer": np.full(len(keys), layer),
            "query": queries,
            "key": keys,
            "offset": offsets,
            "behind": (offsets >= 0) & (offsets < receptive_field),
            "weight": weights[queries, keys].numpy(),
            "share": shares[queries, keys].numpy(),
        },
        schema=AttentionMap.table.columns,
    )
