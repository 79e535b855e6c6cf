"""Facts: the sentences of a story inside a long text (BABILong's rule), followed by a question and its answer."""

from __future__ import annotations

from functools import cache, partial
from typing import Any

import numpy as np

from ssm.base.errors import DataError
from ssm.data.store import TokenStore
from ssm.data.tasks.base import Examples, Generator, prompts_with_answers
from ssm.data.tasks.draws import RandomGenerator
from ssm.data.tasks.published import Prompt, read_babi, read_babilong
from ssm.data.tasks.sentences import Sentences
from ssm.data.tasks.stories import ANSWERS, Story, story
from ssm.data.tokenizers import following
from ssm.specs.tasks.base import Split
from ssm.specs.tasks.facts import FACTS, FactsPart, FactsTask

ATTEMPTS = 50  # tries to make a story that fits into a prompt


class Facts(Generator, kind="facts"):
    """Makes examples one by one, because each story is generated sentence by sentence."""

    spec: FactsTask

    def __init__(self, spec: Any, split: Split, seed: int, store: TokenStore):
        super().__init__(spec, split, seed, store)
        self.tokenizer = store.tokenizer()
        self.following = partial(following, self.tokenizer)
        self.published = cache(lambda question: read_babi(spec.babi, question, split))
        self.prompts = cache(lambda question, length: read_babilong(spec.babilong, question, length))
        self.ready = spec.babilong is not None and split == "test"  # prompts are published completely
        hidden = spec.corpus is not None and not self.ready
        self.sentences = Sentences(self.text, self.tokenizer, spec.least_sentence) if hidden else None
        asked = dict.fromkeys(question for part in spec.mix for question in part.questions)  # without duplicates
        self.room = max(len(self._answer(answer)) for question in asked for answer in self._possible(question))

    def make(self, indices: np.ndarray) -> Examples:
        draws = self.draws(indices)
        parts, where = self.parts(draws).tolist(), draws.uniform("text")[:, 0].tolist()
        rows = []
        for index, number, place, rng in zip(indices.tolist(), parts, where, draws.generators("story"), strict=True):
            part = self.spec.mix[number]
            made = self._published(part, index) if self.ready else self._hidden(part, place, rng)
            rows.append((*made, part.length))
        prompts, answers, questions, counts, lengths = zip(*rows, strict=True)
        longest = max(len(prompt) + len(answer) for prompt, answer, *_ in rows)
        return prompts_with_answers(
            prompts,
            answers,
            longest if self.ready else max(part.length for part in self.spec.mix),
            length=np.array(lengths),
            group=np.array([list(FACTS).index(question) for question in questions]),
            difficulty=np.array(counts, np.float64),
        )

    def _hidden(self, part: FactsPart, place: float, rng: RandomGenerator) -> tuple[np.ndarray, np.ndarray, str, float]:
        """Prompt, answer, question, and the number of sentences in the story."""
        question = rng.one_of(part.questions)
        for _ in range(ATTEMPTS):
            shown = [self._story(part, question, rng, 0) for _ in range(self.spec.shots)]
            shots = [piece for shot in shown for piece in self._told(shot)]
            told = self._story(part, question, rng)
            facts, asked = [self.following(fact) for fact in told.facts], self.following(told.question)
            left = part.length - self.room - sum(map(len, (*shots, *facts, asked)))
            if left >= 0:
                break
        else:
            raise DataError(f"length {part.length}: too short for a story of {question} and its question")
        context = facts
        if self.sentences is not None:
            text = self.sentences.take(int(place * self.text.n_tokens), left)
            slots = sorted(rng.below(len(text) + 1) for _ in facts)  # the sentence that each fact precedes
            context = []
            for number in range(len(text) + 1):
                context += [fact for fact, slot in zip(facts, slots, strict=True) if slot == number]
                context += text[number : number + 1]
        prompt = np.concatenate([*shots, *context, asked])
        return prompt, self._answer(told.answer), question, len(facts)

    def _published(self, part: FactsPart, index: int) -> tuple[np.ndarray, np.ndarray, str, float]:
        """The same for a published prompt. Questions take turns; each uses its file's order."""
        round_, number = divmod(index, len(part.questions))
        question = part.questions[number]
        prompts: list[Prompt] = self.prompts(question, part.length)
        prompt = prompts[round_ % len(prompts)]
        text = self.tokenizer.encode([prompt["input"].encode()])[0].astype(np.int64)
        asked = np.concatenate([text, self.following(prompt["question"].strip())])
        return asked, self._answer(prompt["target"].strip()), question, np.nan

    def _story(self, part: FactsPart, question: str, rng: RandomGenerator, spread: int | None = None) -> Story:
        """A story from bAbI, or a new one. With `spread` 0 it has the part's smallest number of sentences."""
        if self.spec.babi is not None:
            return rng.one_of(self.published(question))
        low, high = part.sentences(question)
        spread = high - low if spread is None else spread
        return story(question, low + rng.below(spread + 1), rng)

    def _told(self, told: Story) -> list[np.ndarray]:
        """The tokens of a story with its question and answer."""
        return [*map(self.following, told.facts), self.following(told.question), self._answer(told.answer)]

    def _answer(self, answer: str) -> np.ndarray:
        """The tokens of an answer and a full stop."""
        return self.following(f"{answer}.")

    def _possible(self, question: str) -> set[str]:
        """All possible answers."""
        if self.ready:
            return {
                prompt["target"].strip() for part in self.spec.mix for prompt in self.prompts(question, part.length)
            }
        if self.spec.babi is not None:
            return {told.answer for told in self.published(question)}
        return set(ANSWERS[question])
