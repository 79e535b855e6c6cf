"""Held-out windows for what is read inside a model's layers: a few at a time, whole, from the zero state."""

from __future__ import annotations

from collections.abc import Iterator

from torch import Tensor

from ssm.base.errors import CheckpointError
from ssm.evaluation.subject import Subject
from ssm.models.backbone import LanguageModel
from ssm.specs.measurements.base import OfWindows


def own_layers(subject: Subject) -> LanguageModel:
    """The model, if its layers are ssm's own.

    Raises:
        CheckpointError: they are another library's.
    """
    if not isinstance(subject.model, LanguageModel):
        raise CheckpointError("its layers are another library's: what goes on inside them is not known here")
    return subject.model


def window_groups(spec: OfWindows, subject: Subject) -> Iterator[tuple[Tensor, Tensor]]:
    """My windows: their numbers (B,) and their tokens (B, T)."""
    windows = subject.windows(spec.sequences, spec.length, spec.seed)
    with subject.progress(spec.sequences, spec.length) as progress:
        for rows in subject.groups(spec.sequences, spec.together(subject.device.type)):
            inputs, _ = windows.read(rows.numpy(), 0, spec.length)
            yield rows, inputs.to(subject.device)
            progress.advance(inputs.numel())
