"""A running diagnosis: the windows it reads, the time it has used, and what it has skipped."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import ParamSpec, TypeVar

from ssm.base.errors import UserError
from ssm.data.batches import HeldOutWindows
from ssm.diagnosis.result import SPENT
from ssm.evaluation.evaluation_context import EvaluationContext
from ssm.specs.diagnosis import DiagnosisSpec
from ssm.specs.measurements.restart_loss import octaves

P = ParamSpec("P")
T = TypeVar("T")


@dataclass(frozen=True)
class FixedWindowsContext(EvaluationContext):
    """An evaluation context with fixed windows: every measurement reads these."""

    given: HeldOutWindows = field(kw_only=True)

    def windows(self, sequences: int, length: int, seed: int) -> HeldOutWindows:
        """The first `sequences` windows, cut to `length` tokens."""
        return replace(self.given, positions=self.given.positions[:sequences], length=length)

    def past(self, first: int) -> FixedWindowsContext:
        """The windows from number `first` on."""
        return replace(self, given=replace(self.given, positions=self.given.positions[first:]))


@dataclass
class Session:
    """One diagnosis."""

    ctx: FixedWindowsContext
    spec: DiagnosisSpec
    tokens: int = 0  # tokens that the model has read
    rate: float = 0.0  # tokens per second
    missing: list[str] = field(default_factory=list)  # "what was not measured: why"
    started: float = field(default_factory=lambda: time.monotonic())

    def spent(self) -> float:
        """Seconds since the start."""
        return time.monotonic() - self.started

    def measured(self, what: str, measure: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T | None:
        """What `measure` returns. None: it raised a UserError, and `missing` has this reason."""
        try:
            return measure(*args, **kwargs)
        except UserError as error:
            self.missing.append(f"{what}: {error}")
            return None

    def spend(self, tokens: int) -> None:
        """Count tokens as read, before they are read.

        Raises:
            UserError: the budget does not allow so many.
        """
        if self.spent() + tokens / self.rate > self.spec.budget_seconds:
            raise UserError(SPENT)
        self.tokens += tokens

    def asked_lengths(self) -> tuple[int, ...]:
        """Lengths of the recall tests: half the context, and the context times 1, 2, 4 ...

        Raises:
            UserError: the user wants no recall tests.
        """
        if not self.spec.passkey:
            raise UserError("not requested (--no-passkey)")
        context = self.spec.context
        return (context // 2, *(k * context for k in octaves(context, self.spec.length)))
