"""A running diagnosis: the windows it reads, the time it has used, and what it has skipped."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import TypeVar

from ssm.base.errors import UserError, is_lack_of_memory
from ssm.data.batches import HeldOutWindows
from ssm.diagnosis.result import OUT_OF_MEMORY, SPENT
from ssm.evaluation.evaluation_context import EvaluationContext
from ssm.specs.diagnosis import DiagnosisSpec
from ssm.specs.measurements.restart_loss import octaves

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

    def measured(self, what: str, tokens: int, measure: Callable[[], T]) -> T | None:
        """The result of `measure`; None: `what` was not measured, and `missing` has the reason.

        Args:
            tokens: that the model reads for it. It is not measured if the budget does not allow them.
        """
        if self.spent() + tokens / self.rate > self.spec.budget_seconds:
            self.missing.append(f"{what}: {SPENT}")
            return None
        try:
            result = measure()
        except UserError as error:
            self.missing.append(f"{what}: {error}")
            return None
        except Exception as error:
            if not is_lack_of_memory(error):
                raise
            self.missing.append(f"{what}: {OUT_OF_MEMORY}")
            return None
        self.tokens += tokens
        return result

    def asked_lengths(self) -> tuple[int, ...]:
        """Lengths of the recall tests: half the context, and the context times 1, 2, 4 ..."""
        context = self.spec.context
        return (context // 2, *(k * context for k in octaves(context, self.spec.length)))
