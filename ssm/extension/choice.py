"""Choose the weights to keep: the best by a measure among those that are still good in context."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from math import inf, isfinite, log1p, nan
from typing import Any

from ssm.specs.extension import Measure

ORIGINAL, END, REPAIRED_MODEL = "original", "end", "repaired"


@dataclass(frozen=True)
class Candidate:
    """Weights, and their losses on the windows for the choice."""

    name: str  # ORIGINAL, END, REPAIRED_MODEL, or the snapshot's fraction of the steps
    step: int
    snapshot: float | None = None  # the fraction; None: not a snapshot
    in_context: float = nan  # these three: as in `ssm.extension.losses.Losses`, nats per token
    far_perplexity: float = nan
    paired_ratio: float = nan

    def as_json(self) -> dict[str, Any]:
        """Plain data. A loss that is not finite becomes null."""
        return {key: None if isinstance(v, float) and not isfinite(v) else v for key, v in asdict(self).items()}

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> Candidate:
        """The inverse of `as_json`."""
        losses = ("in_context", "far_perplexity", "paired_ratio")
        return cls(**{**value, **{key: nan for key in losses if value[key] is None}})


def admitted(candidate: Candidate, original: Candidate, measure: Measure, tolerance: float) -> bool:
    """Whether its perplexity in context rose by at most `tolerance`, and its measure is finite."""
    rise = candidate.in_context - original.in_context  # of the loss; NaN is not admitted
    return rise <= log1p(tolerance) and isfinite(getattr(candidate, measure))


def choose(candidates: Sequence[Candidate], measure: Measure, tolerance: float) -> Candidate:
    """The candidate with the lowest measure among those that are admitted.

    Args:
        candidates: the original first. On a tie, the earlier candidate is chosen.
        tolerance: for example 0.02 for 2%.
    """
    original = candidates[0]
    others = [candidate for candidate in candidates[1:] if admitted(candidate, original, measure, tolerance)]
    known = [original, *others] if isfinite(getattr(original, measure)) else others
    return min(known, key=lambda candidate: getattr(candidate, measure), default=original)


def best_of_trained(candidates: Sequence[Candidate], measure: Measure) -> Candidate | None:
    """The trained weights with the lowest measure, without a limit in context; None: there are no trained weights.

    Args:
        candidates: the original first.
    """

    def value(candidate: Candidate) -> float:
        loss = float(getattr(candidate, measure))
        return loss if isfinite(loss) else inf

    return min(candidates[1:], key=value, default=None)
