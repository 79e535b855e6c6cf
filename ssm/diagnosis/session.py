"""A diagnosis under way: what it reads, what it has spent, and what it leaves out."""

from __future__ import annotations

import time
from dataclasses import dataclass, field, replace

from ssm.data.batches import HeldOutWindows
from ssm.evaluation.bins import octaves
from ssm.evaluation.evaluation_context import EvaluationContext
from ssm.specs.diagnosis import DiagnosisSpec


@dataclass(frozen=True)
class Reader(EvaluationContext):
    """Reads given windows, whichever a measurement would choose."""

    given: HeldOutWindows = field(kw_only=True)

    def windows(self, sequences: int, length: int, seed: int) -> HeldOutWindows:
        """The first of the given windows, up to `length`."""
        return replace(self.given, positions=self.given.positions[:sequences], length=length)

    def past(self, first: int) -> Reader:
        """From window number `first` on."""
        return replace(self, given=replace(self.given, positions=self.given.positions[first:]))


@dataclass
class Session:
    """One diagnosis."""

    reader: Reader
    spec: DiagnosisSpec
    tokens: int = 0  # that went through the model
    rate: float = 0.0  # tokens a second of the model reading on
    missing: list[str] = field(default_factory=list)  # what was not measured, and why
    started: float = field(default_factory=lambda: time.monotonic())

    def spent(self) -> float:
        """Seconds."""
        return time.monotonic() - self.started

    def affordable(self, what: str, tokens: int) -> bool:
        """Whether so many more tokens fit into the budget; they are counted as read if they do."""
        if self.spent() + tokens / self.rate > self.spec.budget_seconds:
            self.missing.append(f"{what}: the budget was spent")
            return False
        self.tokens += tokens
        return True

    def asked_lengths(self) -> tuple[int, ...]:
        """At which something is asked for: half the context, and the context times 1, 2, 4 ..."""
        context = self.spec.context
        return (context // 2, *(k * context for k in octaves(context, self.spec.length)))
