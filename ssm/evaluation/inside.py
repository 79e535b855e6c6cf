"""Held-out windows for what is read inside a model's layers: a few at a time, whole, from the zero state."""

from __future__ import annotations

from collections.abc import Iterator

from torch import Tensor

from ssm.base.errors import CheckpointError
from ssm.evaluation.evaluation_context import EvaluationContext
from ssm.models.backbone import LanguageModel
from ssm.specs.measurements.base import OfWindows


def own_layers(ctx: EvaluationContext) -> LanguageModel:
    """The model, if its layers are ssm's own.

    Raises:
        CheckpointError: they are another library's.
    """
    if not isinstance(ctx.model, LanguageModel):
        raise CheckpointError("its layers are another library's: what goes on inside them is not known here")
    return ctx.model


def window_groups(spec: OfWindows, ctx: EvaluationContext) -> Iterator[tuple[Tensor, Tensor]]:
    """My windows: their numbers (B,) and their tokens (B, T)."""
    windows = ctx.windows(spec.sequences, spec.length, spec.seed)
    with ctx.progress(spec.sequences, spec.length) as progress:
        for rows in ctx.groups(spec.sequences, spec.together(ctx.device.type)):
            inputs, _ = windows.read(rows.numpy(), 0, spec.length)
            yield rows, inputs.to(ctx.device)
            progress.advance(inputs.numel())
