"""RULER's niah_single_1, niah_multikey_2 and variable tracking, by its rules, in the tokens of any tokenizer.

    A special magic number is hidden within the following text. ...
    The grass is green. The sky is blue. The sun is yellow. Here we go. There and back again.
    One of the special magic numbers for amber-anchor is: 1234567.
    The grass is green. ...
    What is the special magic number for amber-anchor mentioned in the provided text? The special magic number for
    amber-anchor mentioned in the provided text is | 1234567

The rules are those of NVIDIA/RULER (Apache-2.0), scripts/data/synthetic: constants.py, niah.py, variable_tracking.py.
A needle is inserted before a random line. A prompt is tokenized as one text.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from itertools import pairwise
from math import ceil
from string import ascii_uppercase
from typing import Any

import numpy as np

from ssm.base.errors import DataError
from ssm.data.store import TokenStore
from ssm.data.tasks.base import Examples, Generator, prompts_with_answers
from ssm.data.tasks.draws import RandomGenerator
from ssm.data.tasks.words import ADJECTIVES, NOUNS
from ssm.data.tokenizers import following
from ssm.specs.tasks.base import Split
from ssm.specs.tasks.ruler import CHAIN, LETTERS, NUMBER, RULER, RulerTask

NOISE = "The grass is green. The sky is blue. The sun is yellow. Here we go. There and back again."
NEEDLE = "One of the special magic numbers for {key} is: {value}."
NIAH = (  # with one key and one number
    "A special magic number is hidden within the following text. Make sure to memorize it. I will quiz you about the "
    "number afterwards.\n{context}\nWhat is the special magic number for {query} mentioned in the provided text? The "
    "special magic number for {query} mentioned in the provided text is"
)
TRACKING = (
    "Memorize and track the chain(s) of variable assignment hidden in the following text.\n\n{context}\nQuestion: Find "
    "all variables that are assigned the value {query} in the text above. Answer: According to the chain(s) of "
    "variable assignment in the text above, {count} variables are assigned the value {query}, they are: "
)
EXAMPLE = 500  # limit for the tokens of the example in variable tracking, if its chain has room
EXAMPLE_LETTERS = 3  # letters of the example's variables
LEAST = {"niah_single_1": 1, "niah_multikey_2": 1, "vt": CHAIN}  # lines: each needle precedes a different line
SAMPLED = 32  # prompts; the longest one estimates the size of a task
ATTEMPTS = 50  # tries to make a prompt that fits


@dataclass(frozen=True)
class PromptText:
    """A prompt and its answer as text."""

    prompt: str
    answer: str  # without the space before it
    depth: float  # relative position of the first needle


@dataclass(frozen=True)
class Prompt:
    """A prompt and its answer as tokens."""

    task: str
    prompt: np.ndarray  # (n,)
    answer: np.ndarray  # (m,)
    depth: float

    @property
    def size(self) -> int:
        return len(self.prompt) + len(self.answer)


class Ruler(Generator, kind="ruler"):
    """Every example has its own keys, numbers, variables and places."""

    spec: RulerTask

    def __init__(self, spec: Any, split: Split, seed: int, store: TokenStore):
        super().__init__(spec, split, seed, store)
        self.tokenizer = store.tokenizer()
        self.shortest = cache(self._shortest)
        self.line = cache(self._line)
        self.example_lines = cache(self._example_lines)
        for part in spec.mix:
            for task in part.tasks:
                if part.length < self.shortest(task):
                    raise self._too_short(part.length, task)

    def make(self, indices: np.ndarray) -> Examples:
        prompts = self._prompts(indices)
        return prompts_with_answers(
            [one.prompt for one in prompts],
            [one.answer for one in prompts],
            max(part.length for part in self.spec.mix),
            length=np.array([part.length for part in self.spec.mix])[self.parts(self.draws(indices))],
            group=np.array([RULER.index(one.task) for one in prompts]),
            difficulty=np.array([one.depth for one in prompts]),
        )

    def _prompts(self, indices: np.ndarray) -> list[Prompt]:
        draws = self.draws(indices)
        prompts = []
        for number, rng in zip(self.parts(draws).tolist(), draws.generators("prompt"), strict=True):
            part = self.spec.mix[number]
            prompts.append(self._fitting(rng.one_of(part.tasks), part.length, rng))
        return prompts

    def _fitting(self, task: str, length: int, rng: RandomGenerator) -> Prompt:
        """A prompt with about as many lines as the length allows."""
        least, line = LEAST[task], self.line(task)
        for _ in range(ATTEMPTS):
            start = rng.state  # the needles do not depend on the number of lines
            lines = max(least, int((length - self.shortest(task)) / line) + least + 1)
            while True:
                prompt = self._prompt(task, lines, RandomGenerator(start))
                if prompt.size <= length:
                    return prompt
                if lines == least:
                    break
                lines = max(least, lines - max(1, ceil((prompt.size - length) / line)))
            rng.below(2)  # move on to another prompt
        raise self._too_short(length, task)

    def _prompt(self, task: str, lines: int, rng: RandomGenerator) -> Prompt:
        """A prompt in tokens.

        Raises:
            DataError: the tokenizer does not represent the answer.
        """
        text = _tracked(lines, rng, self.example_lines()) if task == "vt" else _niah(task, lines, rng)
        answer = following(self.tokenizer, text.answer)
        spelled = self.tokenizer.decode(answer).strip()
        if spelled != text.answer:
            raise DataError(f"the tokenizer cannot represent the answer '{text.answer}': it gives '{spelled}'")
        return Prompt(task, self._encoded(text.prompt), answer, text.depth)

    def _shortest(self, task: str) -> int:
        """Estimated tokens of a prompt and its answer with the fewest lines."""
        return max(self._prompt(task, LEAST[task], RandomGenerator(start)).size for start in range(SAMPLED))

    def _line(self, task: str) -> float:
        """Estimated tokens of an added line."""
        few, many = (self._prompt(task, LEAST[task] + more, RandomGenerator(0)).size for more in (0, SAMPLED))
        return (many - few) / SAMPLED

    def _example_lines(self) -> int:
        """Lines of the example in variable tracking: as many as fit into EXAMPLE, and at least its chain."""

        def size(lines: int) -> int:
            return len(self._encoded(_solved(lines, RandomGenerator(0))))

        lines = CHAIN
        while size(lines + 1) <= EXAMPLE:
            lines += 1
        return lines

    def _encoded(self, text: str) -> np.ndarray:
        """(n,) int64."""
        return self.tokenizer.encode([text.encode()])[0].astype(np.int64)

    def _too_short(self, length: int, task: str) -> DataError:
        return DataError(f"length {length}: too short for {task}, which needs {self.shortest(task)} tokens")


def _niah(task: str, lines: int, rng: RandomGenerator) -> PromptText:
    """One line gives the number of the queried key. In niah_multikey_2 all other lines give numbers of other keys."""
    key, value, place = _key(rng), _number(rng, NUMBER), rng.below(lines)
    other: Callable[[], str] = (lambda: NOISE) if task == "niah_single_1" else (lambda: _other(key, rng))
    context = [other() for _ in range(lines)]
    context.insert(place, NEEDLE.format(key=key, value=value))
    return PromptText(NIAH.format(context="\n".join(context), query=key), value, place / lines)


def _other(key: str, rng: RandomGenerator) -> str:
    """A line about another key."""
    key_of_line = _key(rng)
    while key_of_line == key:
        key_of_line = _key(rng)
    return NEEDLE.format(key=key_of_line, value=_number(rng, NUMBER))


def _tracked(lines: int, rng: RandomGenerator, example_lines: int) -> PromptText:
    """A solved example, and then a chain of assignments."""
    text = _chain(lines, LETTERS, rng)
    return PromptText(f"{_solved(example_lines, rng)}\n\n{text.prompt}", text.answer, text.depth)


def _solved(lines: int, rng: RandomGenerator) -> str:
    """An example with its answer."""
    shown = _chain(lines, EXAMPLE_LETTERS, rng)
    return f"{shown.prompt} {shown.answer}"


def _chain(lines: int, letters: int, rng: RandomGenerator) -> PromptText:
    """The first variable gets a value, and every other variable gets the value of the previous one."""
    variables: list[str] = []
    while len(variables) < CHAIN:
        name = "".join(rng.one_of(ascii_uppercase) for _ in range(letters))
        if name not in variables:
            variables.append(name)
    value = _number(rng, 5)
    assignments = [f"VAR {variables[0]} = {value}"]
    assignments += [f"VAR {name} = VAR {before} " for before, name in pairwise(variables)]
    places: set[int] = set()
    while len(places) < CHAIN:
        places.add(rng.below(lines))
    context = [NOISE] * lines
    for number, place in enumerate(sorted(places)):
        context.insert(place + number, assignments[number])
    prompt = TRACKING.format(context="\n".join(context), query=value, count=CHAIN)
    return PromptText(prompt, " ".join(variables), min(places) / lines)


def _key(rng: RandomGenerator) -> str:
    return f"{rng.one_of(ADJECTIVES)}-{rng.one_of(NOUNS)}"


def _number(rng: RandomGenerator, digits: int) -> str:
    """A number with this many digits; the first one is not 0."""
    return str(10 ** (digits - 1) + rng.below(9 * 10 ** (digits - 1)))
