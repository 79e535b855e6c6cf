"""The settings of `ssm diagnose`."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, PositiveFloat, PositiveInt, model_validator

from ssm.specs.base import Spec
from ssm.specs.diagnosis_defaults import BUDGET, SEED, SEQUENCES, TOLERANCE

LEAST = 4  # windows; with fewer there is no interval and no class of the curve
# With fewer windows a model is never said to hold, because failures may be rare. Example: one window in ten fails by 4
# nats. Then no failing window is among the windows in two thirds of all diagnoses with 4 windows, and in a fifth of
# those with 16 windows (tests/diagnosis/test_coverage.py).
ENOUGH = 64
FOURFOLD = 4  # four times as many windows halve an interval
RESERVED = 0.4  # share of the budget that is kept for the measurements that explain a verdict
DEFAULT_CONTEXTS = 16  # default length, in contexts
WHY_TOLERANCE = (
    "lg Definition 3.2 allows no increase. No finite text can confirm that, so a bound is needed. Ten percent more "
    "perplexity (0.095 nats per token) is also the bound in this project's claims about lg Figure 5."
)


class DiagnosisSpec(Spec):
    """The settings of a diagnosis, without the model and the text."""

    context: PositiveInt  # T, tokens of a training sequence
    length: PositiveInt  # the model is read up to this number of tokens
    tolerance: Annotated[float, Field(gt=1)] = TOLERANCE
    budget_seconds: PositiveFloat = 60 * BUDGET  # questions that are not decided by then stay open
    sequences: Annotated[int, Field(ge=LEAST)] = SEQUENCES  # maximum number of windows
    passkey: bool = True
    # bfloat16: autocast; scans stay in float32, except in some models of transformers, such as MiniMax and xLSTM
    precision: Literal["float32", "bfloat16"] = "float32"
    seed: int = SEED  # of the order of the windows, and of the prompts of retrieval

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
