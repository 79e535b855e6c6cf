"""The smoothness of signals inside the layers: how different the tokens of a window are (bn figure 5)."""

from __future__ import annotations

import polars as pl
import torch
from torch import Tensor

from ssm.evaluation.evaluation_context import EvaluationContext
from ssm.evaluation.inside import own_layers, window_groups
from ssm.evaluation.registry import MEASURES
from ssm.models.inspect import LayerSignals, layer_signals
from ssm.specs.measurements.smoothness import Smoothness


@MEASURES.function
def smoothness(spec: Smoothness, ctx: EvaluationContext) -> pl.DataFrame:
    """The mean pairwise distance by window, layer and signal, in the schema Smoothness.table.

    Raises:
        CheckpointError: the layers are not ssm's own.
    """
    model = own_layers(spec, ctx)
    frames = [pl.DataFrame(schema=Smoothness.table.columns)]
    for rows, tokens in window_groups(spec, ctx):
        for signals in layer_signals(model, tokens):
            frames += _of_layer(rows, signals, model.spec.n_layers)
    return ctx.gather(pl.concat(frames)).sort("sequence", "layer", "signal")


def pairwise_distance(x: Tensor) -> Tensor:
    """E(x) = 1 / (2 (T - 1)) sum over i != j of |x_i - x_j|^2 / sum over i of |x_i|^2 (bn Section 4.2).

    The sum over pairs is 2 T times the sum of squared distances from the mean, so this takes time linear in T.

    Args:
        x: (B, T, C), real or complex, with T at least 2.

    Returns:
        (B,), float64; NaN if x is zero.
    """
    x = (torch.view_as_real(x) if x.is_complex() else x).double().flatten(2)
    T = x.shape[1]
    spread = (x - x.mean(1, keepdim=True)).square().sum((1, 2))  # (B,)
    return spread / x.square().sum((1, 2)) * (T / (T - 1))


def _of_layer(rows: Tensor, signals: LayerSignals, layers: int) -> list[pl.DataFrame]:
    """One frame for each signal of a layer."""
    by_name = {"b": signals.bare_b, "input": signals.b, "h": signals.h, "mixer": signals.mixer, "block": signals.block}
    distances = {name: pairwise_distance(x).cpu() for name, x in by_name.items() if x is not None}  # (B,) each
    of_b = distances.get("b")
    return [
        pl.DataFrame(
            {
                "sequence": rows.numpy(),
                "layer": signals.layer + 1,
                "depth": (signals.layer + 1) / layers,
                "signal": name,
                "pairwise_distance": distance.numpy(),
                "relative_to_b": None if of_b is None else (distance / of_b).numpy(),
            },
            schema=Smoothness.table.columns,
        )
        for name, distance in distances.items()
    ]
