"""Cumulative histograms over the states or channels of each layer."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping

import numpy as np
import polars as pl
import torch
from torch import Tensor

from ssm.evaluation.evaluation_context import EvaluationContext
from ssm.evaluation.inside import own_layers, window_groups
from ssm.models.backbone import LanguageModel
from ssm.models.inspect import layer_coefficients
from ssm.specs.measurements.base import OfWindows

Number = Callable[[Tensor], Tensor]


def histograms(
    spec: OfWindows, ctx: EvaluationContext, numbers: Mapping[str, Number], thresholds: Tensor
) -> pl.DataFrame:
    """Shares of states or channels with a number up to each threshold, by window and layer. Layer 0 is all layers.

    Args:
        spec: its table has columns for sequence, layer, threshold, and each of `numbers`.
        numbers: column -> function from absolute decays over a window (B, T, H, N) to numbers (B, ...).
        thresholds: (X,), in ascending order.

    Raises:
        CheckpointError: the layers are not ssm's own, or no layer has a decay.
    """
    model, schema = own_layers(spec, ctx), spec.table
    names = (*schema.keys, *numbers)
    frames = [pl.DataFrame(schema=schema.columns)]
    for rows, tokens in window_groups(spec, ctx):
        by_layer = {
            layer + 1: [number(decays).flatten(1).double().cpu().expand(len(rows), -1) for number in numbers.values()]
            for layer, decays in _decays(model, tokens)
        }  # (B, states) each
        by_layer[0] = [torch.cat(of_layers, 1) for of_layers in zip(*by_layer.values(), strict=True)]
        for layer, values in by_layer.items():
            columns = (
                rows.repeat_interleave(len(thresholds)).numpy(),
                layer,
                thresholds.repeat(len(rows)).numpy(),
                *(_shares(value, thresholds) for value in values),
            )
            frames.append(pl.DataFrame(dict(zip(names, columns, strict=True)), schema=schema.columns))
    return ctx.gather(pl.concat(frames)).sort(*schema.keys)


def _decays(model: LanguageModel, tokens: Tensor) -> Iterator[tuple[int, Tensor]]:
    """Layers with a decay, and their absolute decays (B, T, H, N); axes of size 1 are constant."""
    for layer, coefficients in layer_coefficients(model, tokens):
        if layer in model.spec.decaying:
            yield layer, coefficients.A.abs()


def _shares(numbers: Tensor, thresholds: Tensor) -> np.ndarray:
    """Shares (B * X,) of the numbers (B, states) that are at most each of the thresholds (X,)."""
    wanted = thresholds.double().expand(len(numbers), -1).contiguous()
    count = torch.searchsorted(numbers.sort(-1).values, wanted, right=True)  # (B, X)
    return (count / numbers.shape[1]).double().flatten().numpy()
