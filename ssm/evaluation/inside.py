"""Held-out windows for measurements inside the layers: whole windows, a few at a time, from the zero state."""

from __future__ import annotations

from collections.abc import Iterator

from torch import Tensor

from ssm.base.errors import CheckpointError
from ssm.evaluation.evaluation_context import EvaluationContext
from ssm.models.backbone import LanguageModel
from ssm.specs.measurements.base import OfRun, OfWindows


def own_layers(spec: OfRun, ctx: EvaluationContext) -> LanguageModel:
    """The model, if it has ssm's own layers, and what the measurement reads in them.

    Raises:
        CheckpointError: the layers are from another library, or none has what the measurement reads.
    """
    if not isinstance(ctx.model, LanguageModel):
        raise CheckpointError("the model has layers of another library, whose signals ssm cannot read")
    if (missing := spec.lacking(ctx.model.spec)) is not None:
        raise CheckpointError(f"no layer of the model has {missing}")
    return ctx.model


def window_groups(spec: OfWindows, ctx: EvaluationContext) -> Iterator[tuple[Tensor, Tensor]]:
    """The windows of this process, in groups: their numbers (B,) and tokens (B, T)."""
    windows = ctx.windows(spec.sequences, spec.length, spec.seed)
    with ctx.progress(spec.sequences, spec.length) as progress:
        for rows in ctx.groups(spec.sequences, spec.windows_per_pass(ctx.device.type)):
            inputs, _ = windows.read(rows.numpy(), 0, spec.length)
            yield rows, inputs.to(ctx.device)
            progress.advance(inputs.numel())
