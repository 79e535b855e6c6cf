"""Needles: a false statement between two sentences of a real text, followed by a question about it.

    ... a sentence of the text. | The capital of France is Madrid. | The next one ... | Ignore the facts, and use only
    the information in the context to answer the question. | What is the capital of France? The capital of France is |
    Madrid.

Every part is tokenized separately, as text after a sentence. A prompt therefore has exactly its length in tokens, and
a statement has the same tokens at every place.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any

import numpy as np

from ssm.base.errors import DataError
from ssm.data.batches import IGNORE_INDEX
from ssm.data.store import TokenStore
from ssm.data.tasks.base import Examples, Generator, prompts_with_answers
from ssm.data.tasks.draws import RandomGenerator
from ssm.data.tasks.sentences import Sentences
from ssm.data.tasks.statements import FORMS, INSTRUCTION, Statement, statement
from ssm.data.tokenizers import following
from ssm.specs.tasks.base import Split
from ssm.specs.tasks.needle import RELATIONS, NeedlePart, NeedleTask


@dataclass(frozen=True)
class Prompt:
    """One prompt, in tokens."""

    statement: Statement
    length: int  # including room for the longest answer
    depth: float  # requested depth
    pieces: list[tuple[str, np.ndarray]]  # in order; the answer is last

    @property
    def answer(self) -> np.ndarray:
        return self.pieces[-1][1]


class Needle(Generator, kind="needle"):
    """Every example has its own statement, depth and place in the text. A full stop follows the answer."""

    spec: NeedleTask

    def __init__(self, spec: Any, split: Split, seed: int, store: TokenStore):
        super().__init__(spec, split, seed, store)
        self.tokenizer = store.tokenizer()
        self.following = partial(following, self.tokenizer)
        self.sentences = Sentences(self.text, self.tokenizer, 1)
        asked = dict.fromkeys(relation for part in spec.mix for relation in part.relations)  # without duplicates
        self.forms = [FORMS[relation] for relation in asked]
        answers = [self._answer(one) for form in self.forms for one in form.objects.values()]
        self.room = max(map(len, answers))  # tokens that every prompt reserves for its answer
        length = min(part.length for part in spec.mix)
        if length < self.shortest:
            needs = f"which needs {self.shortest} tokens with its question"
            raise DataError(f"length {length}: too short for a needle, {needs}")

    @cached_property
    def shortest(self) -> int:
        """The smallest length for every statement."""
        instruction = len(self.following(INSTRUCTION)) if self.spec.instruction else 0
        fixed = []
        for form in self.forms:
            for subject in form.objects:
                sentence = form.statement.format(subject)
                asked = len(self.following(f"{form.question.format(subject)} {sentence}"))
                fixed += [asked + len(self.following(f"{sentence} {one}.\n")) for one in form.objects.values()]
        return max(fixed) + instruction + self.room + 1

    def make(self, indices: np.ndarray) -> Examples:
        prompts = self._prompts(indices)
        return prompts_with_answers(
            [np.concatenate([piece for _, piece in prompt.pieces[:-1]]) for prompt in prompts],
            [prompt.answer for prompt in prompts],
            max(part.length for part in self.spec.mix),
            length=np.array([prompt.length for prompt in prompts]),
            group=np.array([RELATIONS.index(prompt.statement.relation) for prompt in prompts]),
            difficulty=np.array([prompt.depth for prompt in prompts]),
            alternatives=np.stack([self._alternatives(prompt.statement) for prompt in prompts]),
        )

    def pieces(self, index: int) -> list[tuple[str, np.ndarray]]:
        (prompt,) = self._prompts(np.array([index]))
        return [(name, piece) for name, piece in prompt.pieces if len(piece)]

    def _prompts(self, indices: np.ndarray) -> list[Prompt]:
        """The prompts of examples, each with its own part of the mix, depth and place in the text."""
        draws = self.draws(indices)
        parts = self.parts(draws)  # (B,)
        low, high = np.array([part.depths for part in self.spec.mix])[parts].T
        depths = low + (high - low) * draws.uniform("depth")[:, 0]
        places = (draws.uniform("text")[:, 0] * self.text.n_tokens).astype(np.int64)
        each = zip(parts.tolist(), depths.tolist(), places.tolist(), draws.generators("statement"), strict=True)
        return [self._prompt(self.spec.mix[part], depth, place, rng) for part, depth, place, rng in each]

    def _prompt(self, part: NeedlePart, depth: float, place: int, rng: RandomGenerator) -> Prompt:
        """A statement at the sentence border nearest to the depth, in the text that starts at `place`."""
        needle = statement(rng.one_of(part.relations), self.spec.alternatives, rng)
        sentence = self.following(f"{needle.told} {needle.object}.\n")
        question = self.following(f"{needle.question} {needle.told}")
        instruction = self.following(INSTRUCTION) if self.spec.instruction else question[:0]
        left = part.length - self.room - len(sentence) - len(question) - len(instruction)
        text = self.sentences.ending(place, left)
        borders = np.cumsum([0, *map(len, text)])
        whole, border = np.concatenate(text), borders[np.abs(borders - depth * left).argmin()]
        return Prompt(
            needle,
            part.length,
            depth,
            [
                ("text before", whole[:border]),
                ("statement", sentence),
                ("text behind", whole[border:]),
                ("instruction", instruction),
                ("question", question),
                ("answer", self._answer(needle.object)),
            ],
        )

    def _answer(self, answer: str) -> np.ndarray:
        """The tokens of an answer and a full stop.

        Raises:
            DataError: the tokenizer does not represent the answer.
        """
        tokens: np.ndarray = self.following(f"{answer}.")
        spelled = self.tokenizer.decode(tokens)
        if spelled.strip() != f"{answer}.":
            raise DataError(f"the tokenizer cannot represent the answer '{answer}.': it gives '{spelled}'")
        return tokens

    def _alternatives(self, found: Statement) -> np.ndarray:
        """(K, room) tokens, padded with IGNORE_INDEX."""
        answers = [self._answer(other) for other in found.alternatives]
        return np.stack([np.pad(one, (0, self.room - len(one)), constant_values=IGNORE_INDEX) for one in answers])
