"""A running diagnosis: the windows it reads, the time it has used, and what it has skipped."""

from __future__ import annotations

import time
from dataclasses import dataclass, field, replace

from ssm.data.batches import HeldOutWindows
from ssm.diagnosis.result import SPENT
from ssm.evaluation.evaluation_context import EvaluationContext
from ssm.specs.diagnosis import DiagnosisSpec
from ssm.specs.measurements.restart_loss import octaves


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

    def affordable(self, what: str, tokens: int) -> bool:
        """Whether the budget allows this many more tokens. If so, they count as read; else `what` counts as missing."""
        if self.spent() + tokens / self.rate > self.spec.budget_seconds:
            self.missing.append(f"{what}: {SPENT}")
            return False
        self.tokens += tokens
        return True

    def asked_lengths(self) -> tuple[int, ...]:
        """Lengths of the recall tests: half the context, and the context times 1, 2, 4 ..."""
        context = self.spec.context
        return (context // 2, *(k * context for k in octaves(context, self.spec.length)))
