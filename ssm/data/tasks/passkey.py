"""The prompt of the passkey task (lg Figure 8, after Mohtashami & Jaggi 2023) in the tokens of any tokenizer.

    There is an important info ... there. | is green. The sky is ... again. | The pass key is 12345. ... the pass key. |
    The grass is green. ... again. | What is the pass key? The pass key is | 12345

Every part, and every sentence of the repeated text, is tokenized separately, as text after a sentence. A prompt
therefore has exactly its length in tokens. The key is between two sentences, and has the same tokens at every place.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from ssm.base.errors import DataError
from ssm.data.store import TokenStore
from ssm.data.tasks.base import Answers, Examples, Generator
from ssm.data.tokenizers import Tokenizer, following
from ssm.specs.tasks.base import Split
from ssm.specs.tasks.passkey import INSTRUCTION, NEEDLE, QUESTION, PasskeyTask

TEXT = ("The grass is green.", "The sky is blue.", "The sun is yellow.", "Here we go.", "There and back again.")
DIGITS = "0123456789"


class Wording:
    """The parts that all prompts of one tokenizer share. Without `instruction`, a prompt begins with repeated text."""

    def __init__(self, tokenizer: Tokenizer, instruction: bool = True):
        self.tokenizer = tokenizer
        sentences = [following(tokenizer, sentence) for sentence in TEXT]
        told = tokenizer.encode([INSTRUCTION.encode()])[0].astype(np.int64)
        self.instruction = told if instruction else told[:0]  # (I,) tokens
        self.sentences = np.concatenate(sentences)  # (U,) tokens of the repeated text
        self.ends = np.cumsum([len(sentence) for sentence in sentences])  # (sentences,): position after each sentence
        self.question = following(tokenizer, QUESTION)  # (Q,)

    def key(self, number: int, stop: str = "") -> np.ndarray:
        """(K,) tokens of a key, followed by `stop`.

        Raises:
            DataError: the tokenizer has no tokens for digits.
        """
        key = following(self.tokenizer, f"{number}{stop}")
        if digits_of(self.tokenizer, key) != str(number):
            spelled = self.tokenizer.decode(key)
            raise DataError(f"the tokenizer cannot represent the key {number}: it gives '{spelled}'")
        return key

    def needle(self, number: int) -> np.ndarray:
        """(n,) tokens of the sentences that contain the key."""
        return following(self.tokenizer, NEEDLE.format(key=number))


@dataclass(frozen=True)
class PasskeyPieces:
    """The parts of prompts of any length, one row per key."""

    wording: Wording
    needles: Sequence[np.ndarray]  # (n_i,) tokens of each row
    keys: Sequence[np.ndarray]  # (K_i,) tokens of each row, with the text that follows the key
    room: int  # tokens that a prompt reserves for a key
    last: np.ndarray  # (rows,): index of the sentence with which the repeated text ends
    depths: np.ndarray  # (rows,)

    @property
    def shortest(self) -> int:
        """The smallest length of a prompt with its key, without repeated text."""
        fixed = len(self.wording.instruction) + len(self.wording.question)
        return fixed + max(map(len, self.needles)) + self.room

    def of(self, rows: np.ndarray) -> PasskeyPieces:
        """The parts of some rows."""
        needles, keys = ([those[row] for row in rows] for those in (self.needles, self.keys))
        return PasskeyPieces(self.wording, needles, keys, self.room, self.last[rows], self.depths[rows])


def digits_of(tokenizer: Tokenizer, tokens: np.ndarray) -> str:
    """The digits in the text of (n,) tokens."""
    return "".join(character for character in tokenizer.decode(tokens) if character in DIGITS)


class PasskeyPrompts:
    """Prompts of one length, followed by their keys. Tokens are made on demand.

    Args:
        pieces: the parts of the prompts.
        length: tokens of a prompt and the room for its key. Tokens after a shorter key have no meaning.

    Raises:
        DataError: `length` is too short.
    """

    def __init__(self, pieces: PasskeyPieces, length: int):
        if length < pieces.shortest:
            raise DataError(
                f"length {length}: too short for a passkey; instruction, needle, question and key need "
                f"{pieces.shortest} tokens"
            )
        wording = pieces.wording
        self.pieces, self.length = pieces, length
        self.prompt_tokens = length - pieces.room  # tokens before the key
        self.needle = np.array([len(needle) for needle in pieces.needles])  # (rows,) tokens
        fixed_tokens = len(wording.instruction) + len(wording.question)
        self.text = self.prompt_tokens - fixed_tokens - self.needle  # (rows,) tokens
        # First token of each text within the repeated sentences. Texts are cut there, and end with a whole sentence.
        self.first = (wording.ends[pieces.last] - self.text) % len(wording.sentences)  # (rows,)
        self.before = np.array([self._before(row) for row in range(len(pieces.depths))])  # (rows,) before the needle
        fixed = [
            np.concatenate([wording.instruction, needle, wording.question, key])
            for needle, key in zip(pieces.needles, pieces.keys, strict=True)
        ]
        # Prompts without repeated text, padded with zeros: (rows, shortest).
        self.fixed = np.stack([np.pad(tokens, (0, pieces.shortest - len(tokens))) for tokens in fixed])

    def __len__(self) -> int:
        return len(self.pieces.depths)

    def read(self, rows: np.ndarray, start: int, stop: int) -> tuple[Tensor, Tensor]:
        """Inputs and targets [start, stop) of some prompts: two (rows, stop - start) int64 tensors."""
        tokens = torch.from_numpy(self.tokens(rows, start, stop + 1))
        return tokens[:, :-1], tokens[:, 1:]

    def tokens(self, rows: np.ndarray, start: int, stop: int) -> np.ndarray:
        """Tokens [start, stop) of some prompts: (rows, stop - start) int64."""
        position = np.arange(start, stop)
        needle, text, before, first = (x[rows, None] for x in (self.needle, self.text, self.before, self.first))
        begin = len(self.pieces.wording.instruction)  # start of the text; then come needle, text, question and key
        there, again, end = begin + before, begin + before + needle, begin + text + needle  # (B, 1)
        in_text = ((begin <= position) & (position < there)) | ((again <= position) & (position < end))  # (B, S)
        in_front = np.where(position < there, 0, np.where(position < end, before, text))  # tokens of text before it
        fixed = np.take_along_axis(self.fixed[rows], np.where(in_text, 0, position - in_front), 1)
        index = first + position - begin - np.where(position < there, 0, needle)
        sentences = self.pieces.wording.sentences[index % len(self.pieces.wording.sentences)]
        return np.where(in_text, sentences, fixed)

    def _before(self, row: int) -> int:
        """Tokens of the text before the needle: up to the sentence border that is nearest to the depth."""
        text, period = int(self.text[row]), len(self.pieces.wording.sentences)
        wanted = self.pieces.depths[row] * text
        rounds = int(wanted) // period + np.arange(-1, 3)
        ends = (self.pieces.wording.ends - self.first[row] + period * rounds[:, None]).flatten()
        places = np.unique([0, text, *ends[(ends > 0) & (ends < text)]])
        return int(places[np.abs(places - wanted).argmin()])


class Passkey(Generator, kind="passkey"):
    """Every example has its own key, depth and text. A full stop follows the key."""

    spec: PasskeyTask

    def __init__(self, spec: Any, split: Split, seed: int, store: TokenStore):
        super().__init__(spec, split, seed, store)
        self.wording = Wording(store.tokenizer(), spec.instruction)
        self.room = spec.digits + 2  # a space, the digits and a full stop: at most one token per character

    def make(self, indices: np.ndarray) -> Examples:
        parts, pieces = self._drawn(indices)
        lengths = np.array([part.length for part in self.spec.mix])
        tokens = np.zeros((len(parts), lengths.max()), np.int64)
        target_mask = np.zeros((len(parts), lengths.max() - 1), bool)
        sizes = np.array([len(key) for key in pieces.keys])
        starts = lengths[parts] - self.room - 1  # position of the prompt's last token
        for part, length in enumerate(lengths.tolist()):
            rows = np.nonzero(parts == part)[0]
            if not len(rows):
                continue
            tokens[rows, :length] = PasskeyPrompts(pieces.of(rows), length).tokens(np.arange(len(rows)), 0, length)
        place = np.arange(target_mask.shape[1])
        target_mask |= (place >= starts[:, None]) & (place < (starts + sizes)[:, None])
        return Examples(
            tokens,
            target_mask,
            Answers(
                example=np.arange(len(parts)),
                start=starts,
                stop=starts + [self._scored(key) for key in pieces.keys],
                length=lengths[parts],
                group=np.zeros(len(parts), np.int64),
                difficulty=pieces.depths,
            ),
        )

    def pieces(self, index: int) -> list[tuple[str, np.ndarray]]:
        parts, pieces = self._drawn(np.array([index]))
        prompts = PasskeyPrompts(pieces, self.spec.mix[parts[0]].length)
        before, text, needle = int(prompts.before[0]), int(prompts.text[0]), int(prompts.needle[0])
        sizes = {
            "instruction": len(self.wording.instruction),
            "text before": before,
            "needle": needle,
            "text behind": text - before,
            "question": len(self.wording.question),
            "key": len(pieces.keys[0]),
        }
        tokens = prompts.tokens(np.array([0]), 0, sum(sizes.values()))[0]
        found = zip(sizes, np.split(tokens, np.cumsum(list(sizes.values()))[:-1]), strict=True)
        return [(name, part) for name, part in found if len(part)]

    def _drawn(self, indices: np.ndarray) -> tuple[np.ndarray, PasskeyPieces]:
        """Each example's part of the mix (B,), and the parts of the prompts."""
        spec, draws = self.spec, self.draws(indices)
        parts = self.parts(draws)  # (B,)
        low, high = np.array([part.depths for part in spec.mix])[parts].T
        digits = draws.integers("key", 10, spec.digits)  # (B, digits); the first digit is not 0
        digits[:, 0] = 1 + draws.integers("first digit", 9)[:, 0]
        numbers = [int("".join(map(str, row))) for row in digits.tolist()]
        return parts, PasskeyPieces(
            wording=self.wording,
            needles=[self.wording.needle(number) for number in numbers],
            keys=[self._key(number) for number in numbers],
            room=self.room,
            last=draws.integers("text", len(TEXT))[:, 0],
            depths=low + (high - low) * draws.uniform("depth")[:, 0],
        )

    def _key(self, number: int) -> np.ndarray:
        """The tokens of a key and a full stop."""
        key = self.wording.key(number, ".")
        if len(key) > self.room:
            raise DataError(f"the tokenizer needs {len(key)} tokens for the key {number}, more than its characters")
        return key

    def _scored(self, key: np.ndarray) -> int:
        """Number of a key's tokens up to its last digit."""
        tokenizer = self.wording.tokenizer
        return max(place for place in range(1, len(key) + 1) if digits_of(tokenizer, key[place - 1 : place]))
