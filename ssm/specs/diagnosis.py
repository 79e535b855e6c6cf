"""What `ssm diagnose` is asked: how far a model is read, and how sure its answer has to be."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, PositiveFloat, PositiveInt, model_validator

from ssm.specs.base import Spec

LEAST = 4  # windows: fewer give no interval, and no class of the curve
# Windows from which a model may be said to hold. What it fails on may be rare: where one window in ten fails by 4 nats,
# two thirds of all diagnoses of 4 windows would say so and a fifth of those of 16, because none of their windows fails
# (tests/diagnosis/test_coverage.py).
ENOUGH = 64
FOURFOLD = 4  # so many windows halve an interval
OCTAVES = 16  # of the length, in contexts, where nobody gives one
TOLERANCE = 1.1  # the paired ratio of perplexities from which a model counts as broken
WHY_TOLERANCE = (
    "lg Definition 3.2 allows no rise at all, which no finite text can confirm: a bound has to be named. Ten percent "
    "more perplexity (0.095 nats a token) is the bound that this project's claims about lg Figure 5 judge by."
)


class DiagnosisSpec(Spec):
    """A diagnosis, whatever the model and the text."""

    context: PositiveInt  # T, the tokens that the model was trained on
    length: PositiveInt  # the tokens up to which it is read
    tolerance: Annotated[float, Field(gt=1)] = TOLERANCE
    budget_seconds: PositiveFloat = 600.0  # what is not decided by then stays open
    sequences: Annotated[int, Field(ge=LEAST)] = 256  # windows that are read at most
    passkey: bool = True
    precision: Literal["float32", "bfloat16"] = "float32"  # bfloat16: autocast; scans stay in float32
    seed: int = 1  # which windows first, and the resamples of the bootstrap

    @model_validator(mode="after")
    def _sane(self) -> DiagnosisSpec:
        context = self.context
        if context < 4 or context & (context - 1):
            below = 1 << max(2, context.bit_length() - 1)
            raise ValueError(
                f"context {context}: expected a power of two from 4 on; the nearest are {below} and {2 * below}"
            )
        if self.length < 2 * context:
            raise ValueError(f"length {self.length}: expected at least twice the context, {2 * context}")
        return self
