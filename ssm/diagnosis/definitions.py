"""The verdict next to the papers' definitions: what each one measures, what it says, and why they differ."""

from __future__ import annotations

from dataclasses import dataclass
from math import exp, isfinite

from ssm.claims.words import number
from ssm.diagnosis.intervals import OVERFLOW
from ssm.diagnosis.outcome import BREAKS, HOLDS
from ssm.diagnosis.result import Diagnosis
from ssm.diagnosis.verdict import definition_words, extension_words, generalization_words

PAIRED = (
    "The model predicts the same tokens twice: once with the full history, once with only the last T/2 to T "
    "tokens of it (T: the context). The difficulty of the text cancels."
)
BY_POSITION = (
    "The mean loss by position. Every position after the best one inside the context is compared with the best one. "
    "Both have different text; the spread of the losses is the error."
)
ON_AVERAGE = "The mean loss over all tokens up to 2, 4, 8 and so on. A late rise is averaged with everything before it."


@dataclass(frozen=True)
class Definition:
    """One definition of length generalization, and its result for a model."""

    name: str
    looks_at: str
    allows: str
    says: str


def definitions(diagnosis: Diagnosis) -> list[Definition]:
    """The definitions, first the one of the verdict."""
    readings, facts, row = diagnosis.readings, diagnosis.facts, diagnosis.tables.length_class.row(0, named=True)
    rise = f"{_sentence(generalization_words(readings))}"
    if row["excess"] is not None and isfinite(row["excess"]):
        far = f"{number(exp(min(row['excess'], OVERFLOW)))} times the least perplexity inside the context"
        rise += f" Where the rise is most certain, it has {far} (standard error {100 * row['excess_error']:.2g}%)."
    return [
        Definition(
            "The verdict: the paired ratio",
            PAIRED,
            f"A rise up to {number(facts.tolerance)} times.",
            _sentence(diagnosis.verdict.outcome),
        ),
        Definition(
            "lg Definition 3.2: perplexity never exceeds the least one inside the context",
            BY_POSITION,
            "No rise; but a rise counts only if it is larger than the error.",
            rise,
        ),
        Definition(
            "ls Definition 2.1: perplexity falls as more tokens are read",
            ON_AVERAGE,
            "No rise (strong), or less than 2% from one length to its double (weak).",
            _sentence(extension_words(readings)),
        ),
    ]


def why_they_differ(diagnosis: Diagnosis) -> list[str]:
    """The reason for each definition that disagrees with the verdict."""
    outcome, readings, reasons = diagnosis.verdict.outcome, diagnosis.readings, []
    if (outcome, readings.generalizes) in ((BREAKS, True), (HOLDS, False)):
        reasons.append(definition_words(outcome, readings))
    if outcome == BREAKS and readings.length_class in ("strong", "weak"):
        reasons.append(
            "ls Definition 2.1 still finds an extension. It takes the mean over all tokens that were read, and a late "
            "rise changes that mean little."
        )
    if outcome == HOLDS and readings.length_class == "none":
        reasons.append(
            "ls Definition 2.1 still finds none. It allows less than 2% from one length to its double. The verdict "
            "allows one tolerance over all lengths. The definition also counts harder text; the verdict does not."
        )
    return reasons


def _sentence(words: str) -> str:
    return f"{words[:1].upper()}{words[1:]}."
