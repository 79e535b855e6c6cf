"""The workflow's configuration: which scale, which figures, where results go."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, PositiveInt

from ssm.specs.base import Spec


class Rehearsal(Spec):
    """Caps that turn any scale into a run of seconds: every job is real, no number means anything."""

    max_steps: PositiveInt = 8
    max_sequences: PositiveInt = 4
    max_contexts: PositiveInt = 8  # evaluation lengths, in training contexts
    max_seeds: PositiveInt = 1
    max_documents: PositiveInt = 40


class WorkflowConfig(Spec):
    """config/config.yaml."""

    scale: Literal["smoke", "gpu", "paper"] = "smoke"
    figures: Annotated[tuple[str, ...], Field(strict=False)] | Literal["all"] = "all"  # the targets that are planned
    results: str = "results"  # results of a scale go to <results>/<scale>
    device: Literal["auto", "cpu", "cuda"] = "auto"
    threads: PositiveInt = 1  # CPU threads a training or measuring job uses
    rehearsal: Rehearsal | None = None
