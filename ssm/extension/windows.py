"""How many windows of held-out text there are, how many are needed, and what they can decide."""

from __future__ import annotations

from dataclasses import dataclass
from math import ceil
from typing import Any

from ssm.base.counting import size
from ssm.specs.diagnosis import ENOUGH, LEAST, DiagnosisSpec
from ssm.specs.extension import ENOUGH_FOR_A_GAIN, HALF, MOST_CHOICE_WINDOWS

USUAL = 0.1  # the usual held-out share of a text, if the user gives none


def wanted(tokens: int, spec: DiagnosisSpec) -> int:
    """The number of held-out tokens of a text, if the user gives no share.

    It is a tenth of the text. If that is too little for the verdict and the choice, it is as much as they need, but
    at most half of the text.
    """
    needed = (ENOUGH + MOST_CHOICE_WINDOWS) * (spec.length + 1)
    return min(max(int(USUAL * tokens), needed), int(HALF * tokens))


def for_choice(windows: int) -> int:
    """How many of the held-out windows choose a checkpoint. The others are for the verdict."""
    return min(MOST_CHOICE_WINDOWS, max(LEAST, windows // 4))


@dataclass(frozen=True)
class HeldOut:
    """The text that is held out of training, and its use."""

    words: str  # description of the part and its text
    tokens: int
    bytes: int  # approximate size
    length: int  # of a window, in tokens
    verdict: int  # windows that are measured before and after
    choice: int  # windows that choose a checkpoint
    sequences: int  # the limit of windows that are read
    share: float  # largest share of the text that may be held out; 1: separate files

    @property
    def line(self) -> str:
        """A line about the held-out text, and what it can decide."""
        windows = f"{self.verdict + self.choice:,} windows of {self.length:,} tokens"
        parts = f"{self.verdict:,} for the verdict, {self.choice:,} to choose a checkpoint"
        return f"held out: {self.words}; {size(self.bytes)} -> {windows}: {parts}; {self.decides}"

    @property
    def decides(self) -> str:
        """What these windows can decide, and how much text it takes if they are too few."""
        read = min(self.verdict, self.sequences)
        if read >= ENOUGH:
            return "enough to decide whether it gained and whether it holds"
        if read >= ENOUGH_FOR_A_GAIN:
            return f"enough to decide whether it gained; to decide that it holds takes {self._needed(ENOUGH)}"
        return f"enough only for a large gain; to decide whether it gained takes {self._needed(ENOUGH_FOR_A_GAIN)}"

    def as_json(self) -> dict[str, Any]:
        return {
            "words": self.words,
            "tokens": self.tokens,
            "length": self.length,
            "windows_for_the_verdict": self.verdict,
            "windows_to_choose": self.choice,
        }

    def _needed(self, verdict: int) -> str:
        """The option or the amount of text that gives so many windows for the verdict."""
        if self.verdict >= verdict:
            return f"--sequences {verdict}"
        windows = next(n for n in range(verdict, 2 * verdict) if n - for_choice(n) >= verdict)
        tokens = ceil(windows * (self.length + 1) / self.share)
        what = "held-out text" if self.share == 1 else "text"
        about = size(tokens * self.bytes / self.tokens)
        limit = f" and --sequences {verdict}" if verdict > self.sequences else ""
        return f"{verdict} for the verdict: {tokens:,} tokens of {what} (about {about}){limit}"
