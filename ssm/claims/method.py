"""How an interval was made: as words, which the tables keep, and from these words."""

from __future__ import annotations

import re
from dataclasses import dataclass

from ssm.base.counting import counted

EXACT = "exact"  # the words of a number that has no interval because nothing is random
NONE = "none"  # the words where there is no number
STUDENT, GAFFKE, FIELLER, BOOTSTRAP = "95% Student t", "95% Gaffke", "95% Fieller", "95% bootstrap"
SEEDS, SEQUENCES, DRAWS = "seeds", "sequences of one seed (other seeds may differ more)", "draws"

WORDS = re.compile(
    r"(?P<name>.*?)(?: over (?P<count>\d+) (?P<of>[^,;]+))?(?P<logarithms>, of logarithms)?"
    r"(?:, possible values (?P<least>\S+) to (?P<most>[^\s;]+))?(?:; smallest of (?P<steps>[\d,]+) steps?)?"
)


@dataclass(frozen=True)
class Method:
    """How an interval was made."""

    name: str
    count: int = 0  # size of the sample; 0: there is none
    of: str = ""  # what the sample consists of
    logarithms: bool = False  # true: computed from the logarithms of the sample
    possible: tuple[float, float] | None = None  # smallest and largest possible number, which it assumes
    steps: int = 0  # the interval is one of the smallest of so many steps; 0: it is not

    def words(self) -> str:
        """The method as text: "95% Student t over 3 seeds, of logarithms"."""
        text = f"{self.name} over {self.count} {self.of}" if self.count else self.name
        if self.logarithms:
            text += ", of logarithms"
        if self.possible is not None:
            text += f", possible values {self.possible[0]:g} to {self.possible[1]:g}"
        return f"{text}; smallest of {counted(self.steps, 'step')}" if self.steps else text

    @classmethod
    def of_words(cls, words: str) -> Method:
        """The method from its text. A text of another form is a name alone.

        >>> Method.of_words("95% Gaffke over 4 seeds, possible values 0 to 100")
        Method(name='95% Gaffke', count=4, of='seeds', logarithms=False, possible=(0.0, 100.0), steps=0)
        """
        found = WORDS.fullmatch(words)
        if found is None:
            return cls(words)
        limits = None if found["least"] is None else (float(found["least"]), float(found["most"]))
        count, steps = int(found["count"] or 0), int((found["steps"] or "0").replace(",", ""))
        return cls(found["name"], count, found["of"] or "", bool(found["logarithms"]), limits, steps)
